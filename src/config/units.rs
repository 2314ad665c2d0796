//! Sizes and durations with their units. `4MiB` is 4 × 1024 × 1024 bytes and `4MB` is 4,000,000.

/// Bytes, by unit, the largest first.
const SIZES: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Milliseconds, by unit, the largest first.
const TIMES: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a size in bytes.
pub fn size(text: &str) -> Option<u64> {
    read(text, &SIZES)
}

/// Reads a duration in milliseconds.
pub fn millis(text: &str) -> Option<u64> {
    read(text, &TIMES)
}

/// A size in the largest unit that it is a whole number of.
pub fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

/// A duration in the largest unit that it is a whole number of.
pub fn show_millis(millis: u64) -> String {
    show(millis, &TIMES)
}

fn read(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let whole = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    let (name, factor) = units.iter().find(whole).or(units.last()).expect("every table of units has entries");
    format!("{}{name}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::millis;
    use super::show_millis;
    use super::show_size;
    use super::size;

    #[test]
    fn units_mean_what_they_say() {
        assert_eq!(size("4MiB"), Some(4_194_304));
        assert_eq!(size("4MB"), Some(4_000_000));
        assert_eq!(size("1kB"), Some(1_000));
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("2m"), Some(120_000));
        let long = "18446744073709551615GiB";
        for bad in ["", "4", "MiB", "-1B", "+1B", "4 MiB", "4mib", "1.5MiB", "4M", "0x4B", "٤B", long] {
            assert_eq!(size(bad), None, "{bad}");
        }
        for bad in ["30", "s", "-1s", "1.5s", "30 s", "30S", "30sec", "1h30m"] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }

    #[test]
    fn units_are_shown_as_they_are_read() {
        for text in ["1B", "64KiB", "4MB", "5MiB", "3GiB"] {
            assert_eq!(show_size(size(text).unwrap()), text);
        }
        for text in ["1ms", "1500ms", "30s", "10m", "24h"] {
            assert_eq!(show_millis(millis(text).unwrap()), text);
        }
    }
}
