//! Asks the user for confirmation before data is lost.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::signals::{Changing, INTERRUPTED};

/// Interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Asks for confirmation before data is lost, unless `yes` is set.
pub fn confirm(yes: bool, question: &str, changing: &Changing) -> Result<(), String> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(format!("{question} Standard input is not a terminal: confirm with --yes"));
    }
    let mut prompt = std::io::stderr();
    let _ = write!(prompt, "{question} Type yes to continue: ");
    // A signal does not interrupt reading the answer.
    let (sender, received) = channel();
    let listen = move || {
        let mut answer = String::new();
        let received = std::io::stdin().lock().read_line(&mut answer);
        sender.send(received.map(|_| answer))
    };
    std::thread::Builder::new().name("answer".into()).spawn(listen).map_err(|error| error.to_string())?;
    loop {
        match received.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) if changing.is_interrupted() => return Err(INTERRUPTED.into()),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Ok(answer)) if answer.trim() == "yes" => return Ok(()),
            _ => return Err("not confirmed: nothing was changed".into()),
        }
    }
}
