//! Which set a disk block belongs to, which slot it takes, who leaves, and what is cleaned: decisions only.
