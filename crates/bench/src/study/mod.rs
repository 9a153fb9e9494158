//! Published figures as commands: the real engine on the model drive, the paper's value beside ours.
pub mod experiment;
