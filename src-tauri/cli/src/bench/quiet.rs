//! Samples count only where the rest of the machine was quiet. Linux says how busy all cores were, time stolen by the
//! host included, and how much of that was this process and the ones it waited for; elsewhere every sample counts.

use crate::error::Result;

/// Others may use this much of one core.
const MAX_CORES: f64 = 0.1;
/// Times are counted in ticks, and every count is rounded.
const SLACK_TICKS: f64 = 2.0;
/// A sample that others disturbed is taken again this often.
const MAX_RETAKES: u32 = 5;

/// Samples of one thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Samples {
    pub values: Vec<f64>,
    /// How many stayed although others worked meanwhile.
    pub noisy: u32,
}

impl Samples {
    /// Takes one more until it is a quiet one; after the last retake the least disturbed one stays, as noisy.
    pub(super) fn take(&mut self, take: impl FnMut() -> Result<f64>) -> Result<()> {
        self.take_by(take, Moment::now, Moment::others_since)
    }

    fn take_by<M>(
        &mut self,
        take: impl FnMut() -> Result<f64>,
        now: impl Fn() -> Option<M>,
        others: impl Fn(&M, &M) -> f64,
    ) -> Result<()> {
        let (value, cores) = quietest(take, now, others)?;
        self.values.push(value);
        self.noisy += u32::from(cores > MAX_CORES);
        Ok(())
    }
}

/// The least disturbed of some takes, and the cores that others used meanwhile.
fn quietest<M>(
    mut take: impl FnMut() -> Result<f64>,
    now: impl Fn() -> Option<M>,
    others: impl Fn(&M, &M) -> f64,
) -> Result<(f64, f64)> {
    let mut once = || -> Result<(f64, f64)> {
        let before = now();
        let value = take()?;
        let cores = match (before, now()) {
            (Some(before), Some(after)) => others(&after, &before),
            _ => 0.0,
        };
        Ok((value, cores))
    };
    let (mut value, mut least) = once()?;
    for _ in 0..MAX_RETAKES {
        if least <= MAX_CORES {
            break;
        }
        let (again, cores) = once()?;
        if cores < least {
            (value, least) = (again, cores);
        }
    }
    Ok((value, least))
}

/// Ticks since the machine started, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment {
    /// All cores together, idle or not.
    total: u64,
    /// All cores together, at work or stolen.
    busy: u64,
    /// This process and the children it waited for.
    own: u64,
    num_cores: u64,
}

impl Moment {
    /// `None` where the system does not say.
    fn now() -> Option<Moment> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let own = own_ticks(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
        machine(&std::fs::read_to_string("/proc/stat").ok()?, own)
    }

    /// Cores that others used on average since `before`.
    fn others_since(&self, before: &Moment) -> f64 {
        let since = |after: u64, before: u64| after.saturating_sub(before) as f64;
        let elapsed = since(self.total, before.total) / self.num_cores as f64;
        let others = since(self.busy, before.busy) - since(self.own, before.own) - SLACK_TICKS;
        (others / elapsed.max(1.0)).max(0.0)
    }
}

/// `/proc/stat`: "cpu user nice system idle iowait irq softirq steal guest guest_nice", then the same for each core. Time
/// of guests is part of the user's.
fn machine(stat: &str, own: u64) -> Option<Moment> {
    let mut lines = stat.lines().take_while(|line| line.starts_with("cpu"));
    let ticks: Vec<u64> = lines
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq + steal;
    let num_cores = lines.count() as u64;
    (num_cores > 0).then_some(Moment {
        total: busy + idle + iowait,
        busy,
        own,
        num_cores,
    })
}

/// `/proc/self/stat`: user and system time of the process (fields 14 and 15) and of its children (16 and 17). The second
/// field is the program's name in parentheses and may hold anything.
fn own_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{MAX_RETAKES, Moment, Samples, machine, own_ticks};

    const STAT: &str = "cpu  1000 200 300 5000 50 6 7 80 90 10\ncpu0 500 100 150 2500 25 3 4 40 45 5\n\
                        cpu1 500 100 150 2500 25 3 3 40 45 5\nintr 1 2 3\nctxt 4\n";

    #[test]
    fn stolen_time_is_busy_and_waiting_for_the_disk_is_not() {
        let expected = Moment {
            total: 6643,
            busy: 1593,
            own: 5,
            num_cores: 2,
        };
        assert_eq!(machine(STAT, 5), Some(expected));
        assert_eq!(machine("intr 1 2 3\n", 5), None);
        assert_eq!(machine("cpu  1 2 3\ncpu0 1 2 3\n", 5), None);
    }

    #[test]
    fn own_time_is_found_behind_any_program_name() {
        let fields = "R 1 2 3 4 5 6 7 8 9 10 100 20 3000 400 20 0 1";
        assert_eq!(own_ticks(&format!("77 (a) b (c)) {fields}")), Some(3520));
        assert_eq!(own_ticks("77 (cut) R 1 2"), None);
    }

    #[test]
    fn others_are_what_was_busy_and_not_us() {
        let before = Moment {
            total: 1000,
            busy: 500,
            own: 100,
            num_cores: 2,
        };
        // One second on two cores: we had 1.2 of them, others 0.32 and the slack.
        let after = Moment {
            total: 1200,
            busy: 654,
            own: 220,
            ..before
        };
        assert_eq!(after.others_since(&before), 0.32);
        assert_eq!(before.others_since(&before), 0.0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_says_how_busy_it_is() {
        assert!(Moment::now().is_some_and(|now| now.total > now.busy && now.busy > 0));
    }

    /// What stays when others use this many cores, take by take; a take's value is its number.
    fn taken(cores: &[f64]) -> (Samples, usize) {
        let takes = Cell::new(0);
        let take = || {
            takes.set(takes.get() + 1);
            Ok(takes.get() as f64)
        };
        let others = |_: &(), _: &()| cores[(takes.get() - 1).min(cores.len() - 1)];
        let mut samples = Samples::default();
        samples
            .take_by(take, || Some(()), others)
            .expect("a sample");
        (samples, takes.get())
    }

    fn samples(value: f64, noisy: u32) -> Samples {
        Samples {
            values: vec![value],
            noisy,
        }
    }

    #[test]
    fn a_disturbed_sample_is_taken_again() {
        assert_eq!(taken(&[0.05]), (samples(1.0, 0), 1));
        assert_eq!(taken(&[0.5, 0.9, 0.05]), (samples(3.0, 0), 3));
    }

    #[test]
    fn on_a_machine_that_stays_busy_the_least_disturbed_sample_stays_as_noisy() {
        let takes = 1 + MAX_RETAKES as usize;
        assert_eq!(taken(&[0.9, 0.4, 0.9]), (samples(2.0, 1), takes));
    }

    #[test]
    fn where_the_system_does_not_say_every_sample_counts() {
        let mut all = Samples::default();
        all.take_by(|| Ok(1.0), || None::<()>, |_, _| 9.0)
            .expect("a sample");
        assert_eq!(all, samples(1.0, 0));
    }
}
