//! The closed forms: write amplification, carbon, years of life. Beside the model they answer in microseconds what it
//! answers in minutes, and each checks the other.

pub mod carbon;
pub mod dlwa;
mod lambert;
pub mod lifetime;
