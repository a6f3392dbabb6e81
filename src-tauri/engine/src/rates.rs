//! Restore or compute: what brings a prefix's keys and values sooner, by what this machine did with this model before.
//!
//! Restoring is the rule. Computing is chosen only where it was clearly faster, by much evidence, and only for a short
//! prefix: a wrong choice then costs little, and a busy moment of the disk decides nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Computing must be that many times as fast as reading.
const CLEARLY: f64 = 1.5;
/// Tokens that are computed by choice at most.
const MAX_TOKENS: usize = 512;
/// Bytes read before the disk's rate is known, and tokens computed before the model's is.
const EVIDENCE_BYTES: f64 = (64 << 20) as f64;
const EVIDENCE_TOKENS: f64 = 1024.0;
/// What is older than so many times the evidence is forgotten.
const MEMORY: f64 = 4.0;

/// What was measured. Kept in history's settings as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rates {
    /// Bytes of blocks read from disk and checked.
    read_bytes: Rate,
    /// Tokens of prompts run through the model.
    prefill_tokens: Rate,
}

/// An amount and the time it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Rate {
    amount: f64,
    seconds: f64,
}

impl Rate {
    /// Adds to both; beyond `memory` what came before counts less.
    fn add(&mut self, amount: f64, time: Duration, memory: f64) {
        self.amount += amount;
        self.seconds += time.as_secs_f64();
        if self.amount > memory {
            self.seconds *= memory / self.amount;
            self.amount = memory;
        }
    }

    /// Seconds that `amount` takes; `None` while that is not known.
    fn seconds_for(&self, amount: f64, evidence: f64) -> Option<f64> {
        let is_known = self.amount >= evidence && self.seconds > 0.0;
        is_known.then(|| amount * self.seconds / self.amount)
    }
}

impl Rates {
    /// The key under which history keeps the rates of a fingerprint.
    pub(crate) fn setting(fingerprint: &store::Fingerprint) -> String {
        format!("rates.{fingerprint}")
    }

    /// Notes that reading blocks of so many bytes took that long.
    pub(crate) fn read(&mut self, num_bytes: u64, time: Duration) {
        let memory = MEMORY * EVIDENCE_BYTES;
        self.read_bytes.add(num_bytes as f64, time, memory);
    }

    /// Notes that running so many tokens of a prompt through the model took that long.
    pub(crate) fn computed(&mut self, num_tokens: usize, time: Duration) {
        let memory = MEMORY * EVIDENCE_TOKENS;
        self.prefill_tokens.add(num_tokens as f64, time, memory);
    }

    /// Estimated time of a prefill of `num_tokens` tokens in milliseconds; `None` before a prefill step was measured.
    /// Attention takes longer further into a context, so the estimate is rough.
    pub(crate) fn prefill_ms(&self, num_tokens: usize) -> Option<f64> {
        let seconds = self.prefill_tokens.seconds_for(num_tokens as f64, 1.0)?;
        Some(seconds * 1e3)
    }

    /// Whether the last `num_tokens` of a prefix, `num_bytes` on disk, are better computed than read.
    pub(crate) fn prefer_computing(&self, num_tokens: usize, num_bytes: u64) -> bool {
        let reading = self
            .read_bytes
            .seconds_for(num_bytes as f64, EVIDENCE_BYTES);
        let computing = self
            .prefill_tokens
            .seconds_for(num_tokens as f64, EVIDENCE_TOKENS);
        let (Some(reading), Some(computing)) = (reading, computing) else {
            return false;
        };
        let prefer = num_tokens <= MAX_TOKENS && CLEARLY * computing < reading;
        tracing::debug!(
            num_tokens,
            reading_ms = reading * 1e3,
            computing_ms = computing * 1e3,
            prefer,
            "restore or compute"
        );
        prefer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_BYTES: u64 = 8 << 20;

    /// Rates of a disk of so many MiB a second and a model of so many tokens a second.
    fn rates(mib_per_s: u64, tokens_per_s: usize) -> Rates {
        let mut rates = Rates::default();
        rates.read(mib_per_s << 20, Duration::from_secs(1));
        rates.computed(tokens_per_s, Duration::from_secs(1));
        rates
    }

    #[test]
    fn what_is_not_known_is_restored() {
        let second = Duration::from_secs(1);
        let mut rates = Rates::default();
        assert!(!rates.prefer_computing(64, BLOCK_BYTES));
        rates.computed(1_000_000, second);
        assert!(!rates.prefer_computing(64, BLOCK_BYTES));
        rates.read(63 << 20, 1000 * second);
        assert!(!rates.prefer_computing(64, BLOCK_BYTES), "too little read");
        rates.read(1 << 20, second);
        assert!(rates.prefer_computing(64, BLOCK_BYTES));
        let mut rates = Rates::default();
        rates.read(64 << 20, 1000 * second);
        rates.computed(1023, second / 1000);
        assert!(
            !rates.prefer_computing(64, BLOCK_BYTES),
            "too little computed"
        );
    }

    #[test]
    fn computing_must_be_clearly_faster_and_the_prefix_short() {
        // 64 MiB/s read a block of 8 MiB in 125 ms; 64 tokens in that time are 512 a second.
        assert!(!rates(64, 1024).prefer_computing(128, BLOCK_BYTES));
        assert!(!rates(64, 1500).prefer_computing(128, BLOCK_BYTES));
        assert!(rates(64, 1600).prefer_computing(128, BLOCK_BYTES));
        assert!(rates(64, 1600).prefer_computing(512, 4 * BLOCK_BYTES));
        assert!(!rates(64, 1600).prefer_computing(513, 5 * BLOCK_BYTES));
        // This machine: 1 GB/s and 500 tokens/s of 23 040 bytes.
        assert!(!rates(1000, 1500).prefer_computing(64, 64 * 23_040));
    }

    #[test]
    fn one_busy_moment_decides_nothing_and_a_slower_disk_is_learned() {
        let mut rates = rates(1024, 2000);
        let ask = |rates: &Rates| rates.prefer_computing(64, BLOCK_BYTES);
        assert!(!ask(&rates));
        rates.read(1 << 20, Duration::from_millis(500));
        assert!(!ask(&rates), "a stall of half a second");
        for _ in 0..64 {
            rates.read(16 << 20, Duration::from_secs(1));
        }
        assert!(ask(&rates), "another disk");
        for _ in 0..64 {
            rates.read(16 << 20, Duration::from_millis(16));
        }
        assert!(!ask(&rates), "and back");
    }

    #[test]
    fn how_long_a_prompt_takes_is_told_once_it_was_measured() {
        let mut rates = Rates::default();
        assert_eq!(rates.prefill_ms(1000), None, "nobody knows");
        rates.computed(128, Duration::from_millis(256));
        assert_eq!(rates.prefill_ms(1000), Some(2000.0));
    }

    #[test]
    fn a_setting_gives_back_what_was_measured() {
        let rates = rates(100, 700);
        let json = serde_json::to_value(rates).unwrap();
        assert_eq!(serde_json::from_value::<Rates>(json).unwrap(), rates);
    }
}
