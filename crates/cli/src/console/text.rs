//! Values of an inode as text.

use kiln_format::Escaped;
use kiln_format::inode::FileType;

/// Formats type and permissions like `ls -l`: `drwxr-xr-x`.
pub fn mode(file_type: FileType, permissions: u16) -> String {
    let mut text = String::from(file_type.letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// Returns the name of a file type for people.
pub fn file_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Symlink => "symlink",
    }
}

/// Formats seconds since 1970 in UTC: `2023-11-14T22:13:20Z`.
pub fn time(secs: i64) -> String {
    format!("{}Z", date_time(secs))
}

/// Formats seconds and nanoseconds since 1970 in UTC: `2023-11-14T22:13:20.000000001Z`.
pub fn time_nsec(secs: i64, nsec: u32) -> String {
    format!("{}.{nsec:09}Z", date_time(secs))
}

fn date_time(secs: i64) -> String {
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Returns the Gregorian date of a day counted from 1970-01-01. Years begin in March here, so that leap days come
/// last; 400 years have 146097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // 0 is March
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day)
}

/// Escapes a name for a terminal, see [`Escaped`].
pub fn escape(name: &[u8]) -> String {
    Escaped(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_ls() {
        for (file_type, permissions, text) in [
            (FileType::Regular, 0o644, "-rw-r--r--"),
            (FileType::Directory, 0o1777, "drwxrwxrwt"),
            (FileType::Directory, 0o1776, "drwxrwxrwT"),
            (FileType::Regular, 0o6755, "-rwsr-sr-x"),
            (FileType::Regular, 0o6644, "-rwSr-Sr--"),
            (FileType::Symlink, 0o777, "lrwxrwxrwx"),
        ] {
            assert_eq!(mode(file_type, permissions), text);
        }
    }

    #[test]
    fn times_are_those_of_date() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-62_167_219_200, "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(time(secs), text);
        }
        assert_eq!(time_nsec(1, 5), "1970-01-01T00:00:01.000000005Z");
        for extreme in [i64::MIN, i64::MAX] {
            assert!(time(extreme).ends_with('Z'));
        }
    }
}
