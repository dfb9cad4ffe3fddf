//! Quotas: what links have carried since their reset day, kept across restarts.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chrono::{Datelike, Days, Months, NaiveDate, Weekday};
use serde::{Deserialize, Serialize};

/// When a quota begins anew. Days are local ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Period {
    /// Every day.
    Daily,
    /// Every week on this day.
    Weekly(Weekday),
    /// Every month on this day, 1 to 28.
    Monthly(u32),
}

impl Period {
    /// The day on which the period began that a day belongs to.
    fn start(self, day: NaiveDate) -> NaiveDate {
        match self {
            Period::Daily => day,
            Period::Weekly(first) => day.week(first).first_day(),
            Period::Monthly(reset) => {
                let this = day.with_day(reset).unwrap_or(day);
                if this <= day { this } else { this.checked_sub_months(Months::new(1)).unwrap_or(this) }
            }
        }
    }

    /// The day on which the next one begins.
    pub fn next(self, day: NaiveDate) -> NaiveDate {
        let start = self.start(day);
        let next = match self {
            Period::Daily => start.checked_add_days(Days::new(1)),
            Period::Weekly(_) => start.checked_add_days(Days::new(7)),
            Period::Monthly(_) => start.checked_add_months(Months::new(1)),
        };
        next.unwrap_or(start)
    }
}

/// A link's quota: `5GB/monthly@12`, `500MB/daily`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Bytes both ways.
    pub bytes: u64,
    /// How often.
    pub period: Period,
}

/// Why a text is no quota.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// It has another form.
    #[error("`{0}` is no quota; expected e.g. 5GB/monthly@12, 2GB/weekly@mon or 500MB/daily")]
    Form(String),
    /// No day of the week.
    #[error("`{0}` is no day of the week: mon, tue, wed, thu, fri, sat, sun")]
    Weekday(String),
    /// A day that some month doesn't have.
    #[error("`{0}` is no reset day: 1 to 28 are in every month")]
    ResetDay(String),
}

impl std::str::FromStr for Quota {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Quota, QuotaError> {
        let wrong = || QuotaError::Form(text.to_string());
        let (size, period) = text.split_once('/').ok_or_else(wrong)?;
        let bytes = ropewalk_settings::units::bytes(size).map_err(|_| wrong())?;
        let period = match period.split_once('@') {
            None if period == "daily" => Period::Daily,
            None if period == "monthly" => Period::Monthly(1),
            None if period == "weekly" => Period::Weekly(Weekday::Mon),
            Some(("weekly", day)) => {
                let day = day.parse().map_err(|_| QuotaError::Weekday(day.to_string()))?;
                Period::Weekly(day)
            }
            Some(("monthly", day)) => match day.parse() {
                Ok(day @ 1..=28) => Period::Monthly(day),
                _ => return Err(QuotaError::ResetDay(day.to_string())),
            },
            _ => return Err(wrong()),
        };
        Ok(Quota { bytes, period })
    }
}

/// What one link has carried in its period.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Carried {
    /// The day on which the period began, as 2026-11-23.
    since: String,
    bytes: u64,
}

/// What links have carried, by interface, and the file in which it is kept.
#[derive(Clone, Debug)]
pub struct QuotaUsage {
    file: PathBuf,
    carried: BTreeMap<String, Carried>,
}

impl QuotaUsage {
    /// Reads what earlier runs have noted. A file that is missing is an empty one.
    ///
    /// # Errors
    /// If the file can't be read, or isn't what this writes.
    pub fn open(file: &Path) -> io::Result<QuotaUsage> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        let carried = match std::fs::read(file) {
            // So a file is found whose data wasn't on the disk when the power failed.
            Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => {
                tracing::error!(file = %file.display(), "what links have carried is lost: the file is empty");
                BTreeMap::new()
            }
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| named(error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(named(error)),
        };
        Ok(QuotaUsage { file: file.to_path_buf(), carried })
    }

    /// Adds bytes, and returns how many there are in the period.
    pub fn add(&mut self, interface: &str, bytes: u64, period: Period, today: NaiveDate) -> u64 {
        let since = period.start(today).to_string();
        let carried = self
            .carried
            .entry(interface.to_string())
            .or_insert_with(|| Carried { since: since.clone(), bytes: 0 });
        // A clock that is set back doesn't give the quota again. Days in this form are in order as text.
        if carried.since < since {
            *carried = Carried { since, bytes: 0 };
        }
        carried.bytes += bytes;
        carried.bytes
    }

    /// Writes the file; it is whole at any time, a power failure included.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let new = self.file.with_extension("new");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec_pretty(&self.carried)?)?;
        // Else the name may be on the disk before the data.
        file.sync_all()?;
        std::fs::rename(&new, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use chrono::{NaiveDate, Weekday};

    use super::{Period, Quota, QuotaUsage};

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn periods_begin_on_their_reset_day() {
        for (period, today, start, next) in [
            (Period::Daily, "2026-02-28", "2026-02-28", "2026-03-01"),
            (Period::Weekly(Weekday::Mon), "2026-11-29", "2026-11-23", "2026-11-30"),
            (Period::Weekly(Weekday::Sat), "2027-01-01", "2026-12-26", "2027-01-02"),
            (Period::Monthly(12), "2026-11-23", "2026-11-12", "2026-12-12"),
            (Period::Monthly(12), "2026-01-11", "2025-12-12", "2026-01-12"),
            (Period::Monthly(12), "2026-01-12", "2026-01-12", "2026-02-12"),
            (Period::Monthly(28), "2026-03-01", "2026-02-28", "2026-03-28"),
        ] {
            assert_eq!(
                (period.start(day(today)), period.next(day(today))),
                (day(start), day(next)),
                "{today}"
            );
        }
    }

    #[test]
    fn quotas_are_read_as_they_are_written() {
        let quota = |text: &str| text.parse::<Quota>();
        assert_eq!(quota("5GB/monthly@12"), Ok(Quota { bytes: 5_000_000_000, period: Period::Monthly(12) }));
        assert_eq!(quota("500MB/daily"), Ok(Quota { bytes: 500_000_000, period: Period::Daily }));
        assert_eq!(quota("1GB/weekly@sun").unwrap().period, Period::Weekly(Weekday::Sun));
        assert_eq!(quota("1GB/weekly").unwrap().period, Period::Weekly(Weekday::Mon));
        assert!(quota("1GB/weekly@12").unwrap_err().to_string().contains("is no day of the week"));
        for (text, expected) in
            [("5GB", "is no quota"), ("x/daily", "is no quota"), ("5GB/monthly@31", "`31` is no reset day")]
        {
            assert!(quota(text).unwrap_err().to_string().contains(expected), "{text}");
        }
    }

    #[test]
    fn usage_outlives_a_restart_and_ends_with_the_period() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/usage.json");
        let mut usage = QuotaUsage::open(&file).unwrap();
        assert_eq!(usage.add("wwan0", 700, Period::Daily, day("2026-11-23")), 700);
        usage.save().unwrap();
        let mut usage = QuotaUsage::open(&file).unwrap();
        assert_eq!(usage.add("wwan0", 1, Period::Daily, day("2026-11-23")), 701);
        assert_eq!(usage.add("wwan0", 5, Period::Daily, day("2026-11-24")), 5);
        assert_eq!(usage.add("wwan0", 5, Period::Daily, day("2026-11-23")), 10);
        for lost in [&b""[..], &[0; 64]] {
            std::fs::write(&file, lost).unwrap();
            let mut usage = QuotaUsage::open(&file).unwrap();
            assert_eq!(usage.add("wwan0", 5, Period::Daily, day("2026-11-24")), 5);
        }
        std::fs::write(&file, "{").unwrap();
        assert!(QuotaUsage::open(&file).unwrap_err().to_string().contains("usage.json"));
    }
}
