//! `strftime` over a frozen date, for templates that print today.

/// A date and time as the conversation froze it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    year: u32,
    /// 1 to 12.
    month: u32,
    /// 1 to 31.
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl Date {
    /// Reads `2026-03-01T09:05:07…` (or a date alone); a zone at the end is ignored: the clock's reading counts.
    pub(crate) fn parse(text: &str) -> Option<Date> {
        let number = |range: std::ops::Range<usize>| -> Option<u32> {
            let digits = text.get(range)?;
            digits
                .bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| digits.parse().ok())?
        };
        let at = |from: usize| {
            if text.len() > from {
                number(from..from + 2)
            } else {
                Some(0)
            }
        };
        let second = if text.as_bytes().get(16) == Some(&b':') {
            at(17)?
        } else {
            0
        };
        let date = Date {
            year: number(0..4)?,
            month: number(5..7)?,
            day: number(8..10)?,
            hour: at(11)?,
            minute: at(14)?,
            second,
        };
        let sound = (1..=12).contains(&date.month)
            && (1..=31).contains(&date.day)
            && date.hour < 24
            && date.minute < 60;
        sound.then_some(date)
    }

    /// The directives that templates use; an unknown one stays as it is.
    pub(crate) fn format(&self, format: &str) -> String {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                None => out.push('%'),
                Some('-') => match chars.next() {
                    Some(d) => out.push_str(self.directive(d).trim_start_matches('0')),
                    None => out.push_str("%-"),
                },
                Some(d) => out.push_str(&self.directive(d)),
            }
        }
        out
    }

    fn directive(&self, directive: char) -> String {
        let month = MONTHS[(self.month - 1) as usize];
        let day = DAYS[self.weekday() as usize];
        match directive {
            'Y' => format!("{:04}", self.year),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'B' => month.into(),
            'b' | 'h' => month[..3].into(),
            'A' => day.into(),
            'a' => day[..3].into(),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{:02}", (self.hour + 11) % 12 + 1),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'F' => format!("{:04}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            '%' => "%".into(),
            other => format!("%{other}"),
        }
    }

    /// 0 = Sunday (Sakamoto's method).
    fn weekday(&self) -> u32 {
        const SHIFT: [u32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 {
            self.year.saturating_sub(1)
        } else {
            self.year
        };
        (year + year / 4 - year / 100 + year / 400 + SHIFT[(self.month - 1) as usize] + self.day)
            % 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directives_of_templates_read_like_strftime() {
        let date = Date::parse("2026-03-01T09:05:07Z").unwrap();
        assert_eq!(date.format("%d %b %Y"), "01 Mar 2026");
        assert_eq!(
            date.format("%A, %B %-d, %y %H:%M:%S %I%p %% %q"),
            "Sunday, March 1, 26 09:05:07 09AM % %q"
        );
        assert_eq!(
            Date::parse("2024-02-29").unwrap().format("%a %F %T"),
            "Thu 2024-02-29 00:00:00"
        );
        assert_eq!(
            Date::parse("1999-12-31 23:59").unwrap().format("%I %p %M"),
            "11 PM 59"
        );
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-00-01",
            "2026-01-01T99:00",
            "2026-1-1",
            "20é6-01-01",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }
}
