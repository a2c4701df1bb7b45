//! Calendar dates in UTC.

/// A date and time in the Gregorian calendar.
pub(super) struct Civil {
    pub(super) year: i64,
    pub(super) month: u8,
    pub(super) day: u8,
    /// Seconds since midnight.
    pub(super) secs: i64,
}

/// Converts seconds since 1970 to the Gregorian calendar. Years are counted from March, so that the
/// leap day is the last one.
pub(super) fn civil(time: i64) -> Civil {
    let (days, secs) = (time.div_euclid(86_400), time.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * era + year_of_era + i64::from(month <= 2);
    Civil { year, month: month as u8, day: day as u8, secs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let of = |time| {
            let Civil { year, month, day, secs } = civil(time);
            (year, month, day, secs)
        };
        assert_eq!(of(0), (1970, 1, 1, 0));
        assert_eq!(of(-1), (1969, 12, 31, 86_399));
        assert_eq!(of(951_782_400), (2000, 2, 29, 0));
        assert_eq!(of(4_354_819_199), (2107, 12, 31, 86_399));
        assert_eq!(of(1_700_000_000), (2023, 11, 14, 80_000));
    }
}
