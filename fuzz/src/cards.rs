//! Drive cards: any card is either refused with a message or builds a drive.

use ssd::Card;

/// Parses a card and works out the drives it describes, whole and scaled.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let card = match Card::parse("input.toml", text) {
        Ok(card) => card,
        Err(error) => return assert!(error.to_string().contains("input.toml"), "no file in: {error}"),
    };
    for placement in [false, true] {
        let _ = card.shape(placement).layout();
        if let Ok(scaled) = card.scaled(64) {
            let layout = scaled.shape(placement).layout();
            assert!(layout.is_err() || layout.is_ok_and(|layout| layout.capacity_bytes() > 0));
        }
    }
}
