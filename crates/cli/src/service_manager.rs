//! Messages to systemd, for units with `Type=notify`. Without systemd, they are not sent.

use sd_notify::NotifyState;

/// Reports that clients can connect: units that need this server start now.
pub fn report_ready() {
    send(NotifyState::Ready);
}

/// Reports that the server closes.
pub fn report_stopping() {
    send(NotifyState::Stopping);
}

/// A failure is no reason to stop: systemd ends a unit that does not become ready, and logs that.
fn send(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        crate::output::say_error(format_args!("warning: $NOTIFY_SOCKET: {error}"));
    }
}
