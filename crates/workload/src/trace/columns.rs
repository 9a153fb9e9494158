//! Rows of comma-separated values: the meaning of columns, and parsing of numbers.
//!
//! Recorded traces do not quote commas, so a comma always ends a field; a row then takes tens of nanoseconds. Spaces and quotes around a
//! field are removed, because programs that write tables add them.

pub(super) use super::row_error::RowError;

/// Positions of a format's `N` fields in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns<const N: usize> {
    /// By column: the field, or `None` for an unused column.
    fields: Vec<Option<usize>>,
}

impl<const N: usize> Columns<N> {
    /// Fields in a fixed order; `None` for an unused column.
    pub(super) fn positional(order: &[Option<usize>]) -> Self {
        Self { fields: order.to_vec() }
    }

    /// Fields at the positions of their `names` in the header line. `None` if the line contains none of the names.
    pub(super) fn from_header(line: &[u8], names: &[&str; N]) -> Option<Self> {
        let position =
            |column: &[u8]| names.iter().position(|name| bare(column).eq_ignore_ascii_case(name.as_bytes()));
        let mut fields: Vec<Option<usize>> = line.split(|byte| *byte == b',').map(position).collect();
        // Of several columns with one name the first is used.
        for place in 1..fields.len() {
            if fields[..place].contains(&fields[place]) {
                fields[place] = None;
            }
        }
        let used = fields.iter().rposition(Option::is_some)? + 1;
        fields.truncate(used);
        Some(Self { fields })
    }

    /// Uses the order of columns in `line` if it is a header; returns whether it is one. A header without any known column is an error,
    /// because the meaning of its columns is unknown; other lines will be counted as invalid rows.
    pub(super) fn take_header(
        &mut self,
        line: &[u8],
        names: &[&'static str; N],
        required: &[usize],
    ) -> Result<bool, RowError> {
        let Some(columns) = Self::from_header(line, names) else {
            return if looks_like_header(line) {
                Err(RowError::UnknownHeader(names[required[0]]))
            } else {
                Ok(false)
            };
        };
        if line.contains(&b'\r') {
            return Err(RowError::CarriageReturns);
        }
        if let Some(missing) = required.iter().find(|field| !columns.has(**field)) {
            return Err(RowError::Header(names[*missing]));
        }
        *self = columns;
        Ok(true)
    }

    /// Uses the columns called `names` for `fields` instead of the current ones.
    pub(super) fn choose(&mut self, line: &[u8], names: &[String], fields: &[usize]) -> Result<(), RowError> {
        for column in &mut self.fields {
            *column = column.filter(|field| !fields.contains(field));
        }
        for (name, field) in names.iter().zip(fields) {
            let is_it = |column: &[u8]| bare(column).eq_ignore_ascii_case(name.as_bytes());
            let found = line.split(|byte| *byte == b',').position(is_it);
            let free = found.filter(|place| self.fields.get(*place).is_none_or(Option::is_none));
            let place = free.ok_or_else(|| RowError::Chosen(name.clone()))?;
            self.fields.resize(self.fields.len().max(place + 1), None);
            self.fields[place] = Some(*field);
        }
        Ok(())
    }

    /// The meaning of each header column, and the unused ones.
    pub(super) fn text(&self, header: &[u8], names: &[&'static str; N]) -> String {
        let fields =
            self.fields.iter().map(|field| field.map(|field| names[field])).chain(std::iter::repeat(None));
        column_words(fields.zip(header.split(|byte| *byte == b',').map(bare)))
    }

    /// The columns in order, `-` for unused ones.
    pub(super) fn order(&self, names: &[&'static str; N]) -> String {
        let names: Vec<&str> = self.fields.iter().map(|field| field.map_or("-", |at| names[at])).collect();
        names.join(",")
    }

    /// Whether the row has a column for `field`.
    pub(super) fn has(&self, field: usize) -> bool {
        self.fields.contains(&Some(field))
    }

    /// The fields of a row; missing ones are empty.
    #[inline]
    pub(super) fn split<'a>(&self, line: &'a [u8]) -> [&'a [u8]; N] {
        let mut found: [&[u8]; N] = [&[]; N];
        let mut start = 0;
        let mut commas = Commas::new(line);
        for field in &self.fields {
            let end = commas.next();
            if let Some(field) = field {
                found[*field] = bare(&line[start..end.unwrap_or(line.len())]);
            }
            let Some(end) = end else { break };
            start = end + 1;
        }
        found
    }
}

/// Fields with their columns, as `key=id,time=ts`, and the unused columns.
pub(super) fn column_words<'a>(columns: impl Iterator<Item = (Option<&'static str>, &'a [u8])>) -> String {
    let (mut used, mut unused) = (Vec::new(), Vec::new());
    for (field, column) in columns {
        match field {
            Some(field) => used.push(format!("{field}={}", lossy(column))),
            None if column.is_empty() => {}
            None => unused.push(lossy(column)),
        }
    }
    match unused.is_empty() {
        true => used.join(","),
        false => format!("{}; not used: {}", used.join(","), unused.join(", ")),
    }
}

/// Names that a header contains more than once.
pub(super) fn duplicates<'a>(cells: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut met, mut twice): (Vec<Vec<u8>>, Vec<String>) = (Vec::new(), Vec::new());
    for cell in cells.filter(|cell| !cell.is_empty()) {
        let name = cell.to_ascii_lowercase();
        if met.contains(&name) && !twice.iter().any(|known| known.eq_ignore_ascii_case(&lossy(cell))) {
            twice.push(lossy(cell));
        }
        met.push(name);
    }
    twice
}

/// Whether a field marks an unknown size.
pub(super) fn is_unknown_size(field: &[u8]) -> bool {
    const MARKS: [&str; 11] = ["-", "-1", "-1.0", "null", "none", "nan", "n/a", "na", "\\N", "?", "unknown"];
    MARKS.iter().any(|mark| field.eq_ignore_ascii_case(mark.as_bytes()))
}

/// A field without surrounding spaces and quotes.
#[inline]
pub(super) fn bare(field: &[u8]) -> &[u8] {
    match field {
        [b' ' | b'"', ..] | [.., b' ' | b'"'] => trimmed(field),
        _ => field,
    }
}

#[cold]
fn trimmed(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field)
}

/// Whether the line has several fields and all are words.
pub(super) fn looks_like_header(line: &[u8]) -> bool {
    let is_word = |field: &[u8]| matches!(bare(field), [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'#', ..]);
    line.contains(&b',') && line.split(|byte| *byte == b',').all(is_word)
}

/// The positions of a line's commas, found eight bytes at a time. Fields have a few bytes: calling `memchr` for each takes twice as long.
struct Commas<'a> {
    line: &'a [u8],
    /// Start of the next word.
    next_word: usize,
    /// Start of the current word; `found` has the top bit set for each of its bytes that is an unreturned comma.
    word: usize,
    found: u64,
}

impl<'a> Commas<'a> {
    #[inline]
    fn new(line: &'a [u8]) -> Self {
        Self { line, next_word: 0, word: 0, found: 0 }
    }

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            let rest = self.line.get(self.next_word..).filter(|rest| !rest.is_empty())?;
            let bytes = match rest.first_chunk::<8>() {
                Some(bytes) => *bytes,
                None => std::array::from_fn(|at| rest.get(at).copied().unwrap_or(0)),
            };
            (self.word, self.found) = (self.next_word, commas_in(u64::from_le_bytes(bytes)));
            self.next_word += 8;
        }
        let at = self.word + (self.found.trailing_zeros() / 8) as usize;
        self.found &= self.found - 1;
        Some(at)
    }
}

/// The top bit of every byte that is a comma. Adding 127 to the low seven bits carries into the top bit unless all are zero, and never into
/// the next byte.
#[inline]
fn commas_in(word: u64) -> u64 {
    const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let zero_where_comma = word ^ 0x2c2c_2c2c_2c2c_2c2c;
    !(((zero_where_comma & LOW_SEVEN) + LOW_SEVEN) | zero_where_comma | LOW_SEVEN)
}

/// The first `N` words of a line, and the number of words.
#[inline]
pub(super) fn words<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut found: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    for word in line.split(|byte| *byte == b' ' || *byte == b'\t').filter(|word| !word.is_empty()) {
        if let Some(place) = found.get_mut(count) {
            *place = word;
        }
        count += 1;
    }
    (found, count)
}

/// The number in a field, `None` if the field is empty.
#[inline]
pub(super) fn number(field: &[u8], column: &'static str, max: u64) -> Result<Option<u64>, RowError> {
    if field.is_empty() {
        return Ok(None);
    }
    match whole_number(field).or_else(|| without_decimals(field)) {
        Some(value) if value <= max => Ok(Some(value)),
        _ => Err(RowError::Number { column, text: lossy(field), max }),
    }
}

/// The decimal number that a field consists of.
#[inline]
pub(super) fn whole_number(field: &[u8]) -> Option<u64> {
    // Up to 19 digits cannot overflow.
    if field.is_empty() || field.len() > 19 {
        return longest_number(field);
    }
    let mut value = 0u64;
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// The number in 20 digits, if it fits. Decimal hashes can have 20 digits.
#[cold]
fn longest_number(field: &[u8]) -> Option<u64> {
    let digits = field.len() == 20 && field.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(field).ok()?.parse().ok()).flatten()
}

/// `100` for `100.0`, which programs write for columns with missing numbers. Other fields are unchanged.
#[inline]
pub(super) fn without_decimals_of_zero(field: &[u8]) -> &[u8] {
    let Some(point) = field.iter().position(|byte| *byte == b'.') else { return field };
    let (whole, zeros) = (&field[..point], &field[point + 1..]);
    let stands_for_whole = !zeros.is_empty() && zeros.iter().all(|byte| *byte == b'0');
    if stands_for_whole { whole } else { field }
}

#[cold]
fn without_decimals(field: &[u8]) -> Option<u64> {
    let whole = |field: &[u8]| whole_number(without_decimals_of_zero(field));
    whole(field).or_else(|| whole(&written_out(field)?))
}

/// `1700.5` for `1.7005e+03`, which programs write for floating-point columns. `None` for any other field.
#[cold]
fn written_out(field: &[u8]) -> Option<Vec<u8>> {
    // Larger exponents are neither times nor sizes.
    const FURTHEST: usize = 40;
    let at = field.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'))?;
    let (mantissa, exponent) =
        (&field[..at], std::str::from_utf8(&field[at + 1..]).ok()?.parse::<isize>().ok()?);
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let mut digits = [&mantissa[..point], mantissa.get(point + 1..).unwrap_or(&[])].concat();
    if point == 0 || digits.len() > FURTHEST || exponent.unsigned_abs() > FURTHEST {
        return None;
    }
    let point = point as isize + exponent;
    let (zeros_ahead, zeros_behind) = (1 - point, point - digits.len() as isize);
    digits.splice(0..0, std::iter::repeat_n(b'0', zeros_ahead.max(0) as usize));
    digits.extend(std::iter::repeat_n(b'0', zeros_behind.max(0) as usize));
    let point = point.max(1) as usize;
    // Leading zeros would exceed the longest number.
    let zeros = digits[..point - 1].iter().take_while(|digit| **digit == b'0').count();
    let fraction = if point < digits.len() { [b".", &digits[point..]].concat() } else { Vec::new() };
    Some([&digits[zeros..point], &fraction].concat())
}

/// Units of the format with up to nine decimals, in nanoseconds; saturates at 584 years.
pub(super) fn units_with_decimals(
    field: &[u8],
    column: &'static str,
    units_per_second: u64,
) -> Result<u64, RowError> {
    // The usual field, without the divisions that decimals need.
    if let Some(whole) = whole_number(field) {
        return Ok(nanoseconds(whole, units_per_second));
    }
    time(field, column, |field| {
        let point = field.iter().position(|byte| *byte == b'.').unwrap_or(field.len());
        let whole = whole_number(&field[..point])?;
        // The fraction of a unit: parsed as a fraction of a second and scaled.
        let below_ns = nine_decimals(field.get(point + 1..).unwrap_or(&[]))?;
        Some(nanoseconds(whole, units_per_second).saturating_add(below_ns / units_per_second))
    })
}

/// Seconds with up to nine decimals, in nanoseconds. Further decimals are dropped.
pub(super) fn seconds(field: &[u8], column: &'static str) -> Result<u64, RowError> {
    time(field, column, |field| {
        let point = field.iter().position(|byte| *byte == b'.').unwrap_or(field.len());
        let below_ns = nine_decimals(field.get(point + 1..).unwrap_or(&[]))?;
        whole_number(&field[..point])?.checked_mul(1_000_000_000)?.checked_add(below_ns)
    })
}

/// Parses a time with `read`, also in exponent notation.
#[inline]
fn time(field: &[u8], column: &'static str, read: impl Fn(&[u8]) -> Option<u64>) -> Result<u64, RowError> {
    let wrong = || RowError::Time { column, text: lossy(field) };
    read(field).or_else(|| read(&written_out(field)?)).ok_or_else(wrong)
}

/// The first nine decimals as a whole number. `None` if any decimal is not a digit.
#[inline]
fn nine_decimals(decimals: &[u8]) -> Option<u64> {
    let digit = |place: usize| decimals.get(place).map_or(0, |byte| u64::from(byte.wrapping_sub(b'0')));
    let value = (0..9).fold(0, |value, place| value * 10 + digit(place));
    decimals.iter().all(u8::is_ascii_digit).then_some(value)
}

/// Units of the format in nanoseconds; saturates at 584 years.
#[inline]
pub(super) fn nanoseconds(units: u64, units_per_second: u64) -> u64 {
    const SECOND_NS: u64 = 1_000_000_000;
    let (seconds, rest) = (units / units_per_second, units % units_per_second);
    let rest_ns = if units_per_second <= SECOND_NS {
        rest * SECOND_NS / units_per_second
    } else {
        (u128::from(rest) * u128::from(SECOND_NS) / u128::from(units_per_second)) as u64
    };
    seconds.saturating_mul(SECOND_NS).saturating_add(rest_ns)
}

/// A field as text for a message, truncated.
pub(super) fn lossy(field: &[u8]) -> String {
    const SHOWN_BYTES: usize = 60;
    let shown = escaped(&field[..field.len().min(SHOWN_BYTES)]);
    if field.len() > SHOWN_BYTES { format!("{shown}…") } else { shown }
}

/// Bytes as text that is safe to print: control characters and invalid UTF-8 are escaped.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| text.extend(std::ascii::escape_default(*byte).map(char::from)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_follow_the_order_of_the_header() {
        let columns = Columns::from_header(b"x,b , a,y", &["a", "b"]).unwrap();
        assert_eq!(columns.split(b"1,2,3,4"), [b"3", b"2"]);
        assert_eq!(columns.split(b"1,2"), [b"".as_slice(), b"2"], "missing fields are empty");
        assert_eq!(columns.split(b",,,"), [b"", b""]);
        assert!(columns.has(0) && columns.has(1));
        assert!(Columns::from_header(b"GET,7,8", &["a", "b"]).is_none());
    }

    proptest! {
        #[test]
        fn all_commas_are_found(line in proptest::collection::vec(
            // Commas, adjacent codes, and those with the top bit set, to test the carries.
            prop_oneof![any::<u8>(), Just(b','), 0x2b..0x2eu8, 0xabu8..0xae],
            0..70,
        )) {
            let mut commas = Commas::new(&line);
            let found: Vec<usize> = std::iter::from_fn(|| commas.next()).collect();
            let scanned: Vec<usize> = (0..line.len()).filter(|at| line[*at] == b',').collect();
            prop_assert_eq!(found, scanned);
        }
    }

    #[test]
    fn number_accepts_digits_only() {
        assert_eq!(whole_number(b"0"), Some(0));
        assert_eq!(whole_number(b"9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(whole_number(b"18446744073709551615"), Some(u64::MAX));
        for bad in
            [&b""[..], b"-1", b"+1", b"1.0", b" 1", b"1e3", b"99999999999999999999", b"+8446744073709551615"]
        {
            assert_eq!(whole_number(bad), None, "{}", lossy(bad));
        }
        assert_eq!(number(b"", "n", 9), Ok(None));
        assert_eq!(number(b"9", "n", 9), Ok(Some(9)));
        let error = number(b"10", "n", 9).unwrap_err();
        assert_eq!(error.to_string(), "column `n` is `10`, which is not a whole number from 0 to 9");
    }

    #[test]
    fn surrounding_spaces_and_quotes_are_removed() {
        let mut columns = Columns::positional(&[]);
        assert_eq!(columns.take_header(br#"x, "a" ,"b""#, &["a", "b"], &[0, 1]), Ok(true));
        assert_eq!(columns.split(br#"1, "7" ,"8""#), [b"7", b"8"]);
        assert_eq!(columns.split(br#"1, 7 , 8"#), [b"7", b"8"]);
        assert_eq!(
            columns.split(br#"1,"7,8""#),
            [br#""7"#, br#"8""#],
            "a comma ends a field even inside quotes"
        );
    }

    #[test]
    fn header_without_known_columns_is_an_error() {
        let mut columns = Columns::positional(&[Some(0), Some(1)]);
        let unknown = columns.take_header(b"object_size,# object_id", &["a", "b"], &[1]);
        assert_eq!(unknown, Err(RowError::UnknownHeader("b")));
        assert_eq!(columns.take_header(b"GET,7", &["a", "b"], &[1]), Ok(false));
        assert_eq!(columns.take_header(b"words", &["a", "b"], &[1]), Ok(false));
    }

    #[test]
    fn whole_number_may_have_zero_decimals() {
        assert_eq!(number(b"100.0", "n", 100), Ok(Some(100)));
        for bad in [&b"100."[..], b"100.5", b".0", b"1.0.0", b"101.0"] {
            assert!(number(bad, "n", 100).is_err(), "{}", lossy(bad));
        }
    }

    #[test]
    fn units_accept_decimals() {
        assert_eq!(units_with_decimals(b"12.5", "ts", 1), Ok(12_500_000_000));
        assert_eq!(units_with_decimals(b"1700000000000.25", "ts", 1000), Ok(1_700_000_000_000_250_000));
        assert_eq!(units_with_decimals(b"7", "ts", 1_000_000_000), Ok(7));
        assert_eq!(
            units_with_decimals(b"1700000000000", "ts", 1),
            Ok(u64::MAX),
            "milliseconds read as seconds saturate"
        );
        for bad in
            [&b"e9"[..], b"", b".", b"1.x", b"-1", b"1e", b"1e99", b"1xe9", b"1.e.9", b"-1e9", b"1e-+9"]
        {
            assert!(units_with_decimals(bad, "ts", 1).is_err(), "{}", lossy(bad));
        }
    }

    /// numpy and pandas write numbers with an exponent.
    #[test]
    fn numbers_with_an_exponent_are_read() {
        for (text, ns) in [
            (&b"1.700000000123456789e+09"[..], 1_700_000_000_123_456_789),
            (b"1e9", 1_000_000_000_000_000_000),
            (b"1.25E+00", 1_250_000_000),
            (b"2.5e-01", 250_000_000),
            (b"2.5e-03", 2_500_000),
            (b"0.000000e+00", 0),
            (b"1e-40", 0),
        ] {
            assert_eq!(units_with_decimals(text, "ts", 1), Ok(ns), "{}", lossy(text));
            assert_eq!(seconds(text, "ts"), Ok(ns), "{}", lossy(text));
        }
        assert_eq!(number(b"4.672e+03", "n", u64::MAX), Ok(Some(4672)));
        assert_eq!(number(b"0.0000000000000000000e+00", "n", u64::MAX), Ok(Some(0)));
        assert!(number(b"4.6725e+03", "n", u64::MAX).is_err());
    }

    #[test]
    fn time_units_are_scaled_to_nanoseconds() {
        assert_eq!(nanoseconds(604_038_471_123, 1000), 604_038_471_123_000_000);
        assert_eq!(nanoseconds(7, 3), 2_333_333_333);
        assert_eq!(nanoseconds(12_345_678_901_234, 10_000_000_000), 1_234_567_890_123);
        assert_eq!(nanoseconds(u64::MAX, 1), u64::MAX, "saturates at 584 years");
    }
}
