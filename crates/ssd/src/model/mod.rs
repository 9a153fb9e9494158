//! Closed forms of write amplification, carbon and lifetime. They give in microseconds what the model computes in
//! minutes, and the tests compare the two.

pub mod carbon;
pub mod dlwa;
mod lambert;
pub mod lifetime;
