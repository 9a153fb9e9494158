//! Parses and writes dates and times of day, as seconds and nanoseconds since 1970.

use std::io::Write as _;

/// Date and time in Apache's logs, `10/Oct/2000:13:55:36 -0700`.
pub(super) fn log_time_ns(text: &[u8]) -> Option<u64> {
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (date, rest) = (text.get(..11)?, text.get(11..)?);
    let month = MONTHS.iter().position(|name| date[3..6].eq_ignore_ascii_case(*name))? as u64 + 1;
    let marks = [date[2], date[6], *rest.first()?];
    if marks != *b"//:" {
        return None;
    }
    let days = days_since_1970(digits(&date[7..])?, month, digits(&date[..2])?)?;
    let second = days.checked_mul(86_400)?.checked_add(second_of_day(rest.get(1..9)?)?)?;
    let zone = rest.get(9..)?.trim_ascii();
    let offset = match zone {
        [] => 0,
        [sign @ (b'+' | b'-'), hours_minutes @ ..] if hours_minutes.len() == 4 => {
            let seconds = digits(&hours_minutes[..2])? * 3600 + digits(&hours_minutes[2..])? * 60;
            if *sign == b'+' { -(seconds as i64) } else { seconds as i64 }
        }
        _ => return None,
    };
    second.checked_add_signed(offset)?.checked_mul(1_000_000_000)
}

/// Date and time in ISO 8601, `2007-02-22 17:00:03.061629`, separated by `T` or a space, optionally followed by `Z`.
pub(super) fn iso_time_ns(text: &[u8]) -> Option<u64> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    if date[4] != b'-' || date[7] != b'-' || ![b'T', b' '].contains(rest.first()?) {
        return None;
    }
    let days = days_since_1970(digits(&date[..4])?, digits(&date[5..7])?, digits(&date[8..])?)?;
    let second = days.checked_mul(86_400)?.checked_add(second_of_day(rest.get(1..9)?)?)?;
    let below = rest.get(9..)?;
    let below = below.strip_suffix(b"Z").unwrap_or(below);
    let decimals = match below {
        [] => &below[..0],
        [b'.', decimals @ ..] if !decimals.is_empty() && decimals.iter().all(u8::is_ascii_digit) => decimals,
        _ => return None,
    };
    let below_ns = (0..9)
        .fold(0, |value, place| value * 10 + decimals.get(place).map_or(0, |digit| u64::from(digit - b'0')));
    second.checked_mul(1_000_000_000)?.checked_add(below_ns)
}

/// Appends a time in nanoseconds since 1970 in ISO 8601, with nine decimals.
pub(super) fn push_iso_time(time_ns: u64, text: &mut Vec<u8>) {
    let (second, below_ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let (year, month, day) = date(second / 86_400);
    let (hours, minutes, seconds) = (second / 3600 % 24, second / 60 % 60, second % 60);
    let written =
        write!(text, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{below_ns:09}");
    written.expect("writing to memory cannot fail");
}

/// Time of day, `13:55:36`.
fn second_of_day(text: &[u8]) -> Option<u64> {
    let [hours, minutes, seconds] = [&text[..2], &text[3..5], &text[6..8]].map(digits);
    let (hours, minutes, seconds) = (hours?, minutes?, seconds?);
    // A leap second counts as the following second.
    let is_time = text[2] == b':' && text[5] == b':' && hours < 24 && minutes < 60 && seconds <= 60;
    is_time.then_some(hours * 3600 + minutes * 60 + seconds)
}

/// Days since 1970 in the Gregorian calendar. Years start in March here, so that leap days are last (Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms").
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=2553).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    days.checked_sub(719_468)
}

/// The inverse of [`days_since_1970`].
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn digits(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 4 && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_time_is_converted_to_seconds_since_1970() {
        assert_eq!(log_time_ns(b"10/Oct/2000:13:55:36 -0700"), Some(971_211_336_000_000_000));
        assert_eq!(log_time_ns(b"01/Jan/1970:01:00:00 +0100"), Some(0));
        assert_eq!(log_time_ns(b"29/Feb/2024:00:00:01 +0000"), Some(1_709_164_801_000_000_000));
        for wrong in
            [&b"10/Okt/2000:13:55:36 -0700"[..], b"10/Oct/2000", b"10/Oct/2000:25:55:36 -0700", b"", b"1/2/3"]
        {
            assert_eq!(log_time_ns(wrong), None);
        }
    }

    #[test]
    fn written_time_reads_back() {
        // Up to the year 2553.
        let spread = (0..2990_u64).map(|number| number * 6_148_914_691_236_517);
        for time_ns in spread.chain([951_782_400_000_000_000]) {
            let mut text = Vec::new();
            push_iso_time(time_ns, &mut text);
            assert_eq!(iso_time_ns(&text), Some(time_ns), "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn iso_time_accepts_up_to_nine_decimals() {
        assert_eq!(iso_time_ns(b"2007-02-22 17:00:03.061629"), Some(1_172_163_603_061_629_000));
        assert_eq!(iso_time_ns(b"2007-02-22T17:00:03Z"), Some(1_172_163_603_000_000_000));
        for wrong in
            [&b"2007-02-22"[..], b"2007-13-22 17:00:03", b"2007-02-22 17:00:03.", b"128166372003061629"]
        {
            assert_eq!(iso_time_ns(wrong), None);
        }
    }
}
