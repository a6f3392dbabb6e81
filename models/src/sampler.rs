//! Logits to the next token.

use std::collections::HashSet;
use std::sync::Arc;

use kernels::cuda::{Choice, Cuts};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How the next token is chosen. The steps run in this order: repetition penalty, top-k, top-p, min-p, temperature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerConfig {
    /// 0 = greedy: the most likely token, always.
    pub temperature: f32,
    /// Keep the k most likely tokens.
    pub top_k: Option<usize>,
    /// Keep the most likely tokens that together reach this probability.
    pub top_p: Option<f32>,
    /// Keep the tokens at least this likely relative to the most likely one.
    pub min_p: Option<f32>,
    /// Divides the (positive) logits of recent tokens; 1 = off.
    pub repetition_penalty: f32,
    /// How many of the latest tokens count as recent.
    pub repetition_window: usize,
    /// Same seed, same logits: same tokens.
    pub seed: u64,
}

impl Default for SamplerConfig {
    fn default() -> SamplerConfig {
        SamplerConfig {
            temperature: 0.7,
            top_k: None,
            top_p: Some(0.95),
            min_p: Some(0.05),
            repetition_penalty: 1.0,
            repetition_window: 64,
            seed: 0,
        }
    }
}

/// A seeded sampler.
#[derive(Debug, Clone)]
pub struct Sampler {
    config: SamplerConfig,
    rng: ChaCha8Rng,
    /// Tokens exempt from the repetition penalty.
    spared: Arc<HashSet<u32>>,
}

/// Logits beyond this are clamped, so that infinities cannot make a probability NaN.
const LARGEST_LOGIT: f32 = 1e30;
/// Candidates sorted in the first round of top-p; doubled until the probability is reached.
const FIRST_ROUND: usize = 256;
/// Candidates that a GPU ranks.
const MOST_RANKED: usize = 256;

impl Sampler {
    /// A sampler at the beginning of its random sequence.
    pub fn new(config: SamplerConfig) -> Sampler {
        Sampler::sparing(config, Arc::default())
    }

    /// Creates a sampler that exempts the `spared` tokens from the repetition penalty.
    pub(crate) fn sparing(config: SamplerConfig, spared: Arc<HashSet<u32>>) -> Sampler {
        let rng = ChaCha8Rng::seed_from_u64(config.seed);
        Sampler {
            config,
            rng,
            spared,
        }
    }

    /// The next token. `recent` are the tokens before it, the latest last. Logits that are not numbers are never chosen
    /// (token 0 if none is a number); equal logits are ranked by id.
    pub fn sample(&mut self, logits: &[f32], recent: &[u32]) -> u32 {
        let random = match self.is_greedy() {
            true => 0.0,
            false => self.rng.random(),
        };
        self.choose(logits, recent, random)
    }

    /// How a GPU would sample, and none where it cannot: it knows no tokens before.
    pub(crate) fn choice(&mut self) -> Option<Choice> {
        if self.has_penalty() || self.config.top_k.is_some_and(|k| k > MOST_RANKED) {
            return None;
        }
        if self.is_greedy() {
            return Some(Choice::Greedy);
        }
        let SamplerConfig {
            temperature,
            top_k,
            top_p,
            min_p,
            ..
        } = self.config;
        Some(Choice::Random {
            cuts: Cuts {
                top_k,
                top_p,
                min_p,
                temperature,
            },
            random: self.rng.random(),
        })
    }

    fn is_greedy(&self) -> bool {
        let SamplerConfig {
            temperature, top_k, ..
        } = self.config;
        temperature.is_nan() || temperature <= 0.0 || top_k == Some(1)
    }

    fn has_penalty(&self) -> bool {
        let penalty = self.config.repetition_penalty;
        !(penalty == 1.0 || penalty.is_nan() || penalty <= 0.0)
    }

    /// The next token by a random number in 0..1.
    pub(crate) fn choose(&self, logits: &[f32], recent: &[u32], random: f64) -> u32 {
        let mut candidates: Vec<(u32, f32)> = logits
            .iter()
            .enumerate()
            .filter(|(_, logit)| !logit.is_nan())
            .map(|(id, &logit)| (id as u32, logit.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)))
            .collect();
        self.penalise(&mut candidates, recent);
        if candidates.is_empty() || self.is_greedy() {
            return candidates
                .into_iter()
                .reduce(|best, c| if ranks_before(&c, &best) { c } else { best })
                .map_or(0, |c| c.0);
        }
        self.keep_likely(&mut candidates);
        let temperature = f64::from(self.config.temperature.max(1e-3));
        let top = f64::from(candidates[0].1);
        let weights: Vec<f64> = candidates
            .iter()
            .map(|c| ((f64::from(c.1) - top) / temperature).exp())
            .collect();
        let mut left = random * weights.iter().sum::<f64>();
        for (candidate, weight) in candidates.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return candidate.0;
            }
        }
        candidates[0].0
    }

    fn penalise(&self, candidates: &mut [(u32, f32)], recent: &[u32]) {
        if !self.has_penalty() {
            return;
        }
        let penalty = self.config.repetition_penalty;
        let start = recent.len().saturating_sub(self.config.repetition_window);
        let recent = recent[start..].iter().copied();
        let recent: HashSet<u32> = recent.filter(|id| !self.spared.contains(id)).collect();
        for (_, logit) in candidates.iter_mut().filter(|(id, _)| recent.contains(id)) {
            *logit = if *logit > 0.0 {
                *logit / penalty
            } else {
                *logit * penalty
            };
        }
    }

    /// Cuts `candidates` (not empty) to those that top-k, top-p and min-p keep, most likely first.
    fn keep_likely(&self, candidates: &mut Vec<(u32, f32)>) {
        if let Some(k) = self.config.top_k.filter(|&k| k > 0) {
            sort_top(candidates, k);
            candidates.truncate(k);
        }
        let top = candidates.iter().map(|c| c.1).fold(f32::MIN, f32::max);
        let weight = |c: &(u32, f32)| (f64::from(c.1) - f64::from(top)).exp();
        let total: f64 = candidates.iter().map(weight).sum();
        match self.config.top_p.filter(|p| (0.0..1.0).contains(p)) {
            None => sort_top(candidates, usize::MAX),
            Some(p) => {
                let mut sorted = FIRST_ROUND;
                loop {
                    sort_top(candidates, sorted);
                    let mut reached = 0.0;
                    let needed = candidates.iter().take(sorted).position(|c| {
                        reached += weight(c);
                        reached >= f64::from(p) * total
                    });
                    if let Some(last) = needed {
                        candidates.truncate(last + 1);
                        break;
                    }
                    if sorted >= candidates.len() {
                        break;
                    }
                    sorted *= 2;
                }
            }
        }
        if let Some(min_p) = self.config.min_p.filter(|p| *p > 0.0) {
            let kept = candidates
                .iter()
                .take_while(|c| weight(c) >= f64::from(min_p))
                .count();
            candidates.truncate(kept.max(1));
        }
    }
}

fn ranks_before(a: &(u32, f32), b: &(u32, f32)) -> bool {
    a.1 > b.1 || (a.1 == b.1 && a.0 < b.0)
}

/// Puts the `n` most likely candidates first, in order; the rest follow in any order.
fn sort_top(candidates: &mut [(u32, f32)], n: usize) {
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if n < candidates.len() {
        candidates.select_nth_unstable_by(n, order);
        candidates[..n].sort_unstable_by(order);
    } else {
        candidates.sort_unstable_by(order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(seed: u64) -> SamplerConfig {
        SamplerConfig {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            seed,
            ..SamplerConfig::default()
        }
    }

    fn counts(config: SamplerConfig, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(config);
        let mut counts = vec![0; logits.len()];
        for _ in 0..draws {
            counts[sampler.sample(logits, &[]) as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        let mut sampler = Sampler::new(SamplerConfig {
            temperature: 0.0,
            ..open(1)
        });
        assert_eq!(sampler.sample(&[0.0, 3.0, 3.0, f32::NAN], &[]), 1);
        assert_eq!(sampler.sample(&[f32::NAN, f32::NEG_INFINITY], &[]), 1);
        assert_eq!(sampler.sample(&[1.0, f32::INFINITY], &[]), 1);
    }

    #[test]
    fn hopeless_logits_never_panic() {
        for config in [
            open(1),
            SamplerConfig {
                temperature: 0.0,
                ..open(1)
            },
            SamplerConfig::default(),
        ] {
            let mut sampler = Sampler::new(SamplerConfig {
                top_k: Some(3),
                repetition_penalty: 1.3,
                ..config
            });
            for logits in [
                &[][..],
                &[f32::NAN; 4],
                &[f32::INFINITY; 4],
                &[f32::NEG_INFINITY; 4],
            ] {
                assert!(sampler.sample(logits, &[0, 1, 99]) < 4);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 100) as f32 / 20.0).collect();
        let draw = |seed| {
            let mut sampler = Sampler::new(open(seed));
            (0..50)
                .map(|_| sampler.sample(&logits, &[]))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn frequencies_follow_the_softmax_at_the_temperature() {
        let logits = [2.0f32, 1.0, 0.0, -1.0];
        for temperature in [0.5f32, 1.0, 2.0] {
            let draws = 20_000;
            let seen = counts(
                SamplerConfig {
                    temperature,
                    ..open(3)
                },
                &logits,
                draws,
            );
            let weights: Vec<f64> = logits
                .iter()
                .map(|l| f64::from(l / temperature).exp())
                .collect();
            let total: f64 = weights.iter().sum();
            for (count, weight) in seen.iter().zip(&weights) {
                assert!(
                    (*count as f64 / draws as f64 - weight / total).abs() < 0.015,
                    "{seen:?} at {temperature}"
                );
            }
        }
    }

    #[test]
    fn top_k_top_p_and_min_p_cut_the_tail() {
        // Probabilities 0.5, 0.3, 0.15, 0.05.
        let logits: Vec<f32> = [0.5f32, 0.3, 0.15, 0.05].iter().map(|p| p.ln()).collect();
        let kept = |config| {
            counts(config, &logits, 4000)
                .iter()
                .filter(|c| **c > 0)
                .count()
        };
        assert_eq!(
            kept(SamplerConfig {
                top_k: Some(2),
                ..open(1)
            }),
            2
        );
        assert_eq!(
            kept(SamplerConfig {
                top_p: Some(0.79),
                ..open(1)
            }),
            2
        );
        assert_eq!(
            kept(SamplerConfig {
                top_p: Some(0.81),
                ..open(1)
            }),
            3
        );
        assert_eq!(
            kept(SamplerConfig {
                min_p: Some(0.2),
                ..open(1)
            }),
            3
        );
        assert_eq!(
            kept(SamplerConfig {
                min_p: Some(2.0),
                ..open(1)
            }),
            1
        );
        assert_eq!(
            kept(SamplerConfig {
                top_p: Some(0.0),
                ..open(1)
            }),
            1
        );
        assert_eq!(kept(open(1)), 4);
    }

    #[test]
    fn top_p_looks_as_far_down_as_it_must() {
        let logits = vec![0.0f32; 3000];
        let seen = counts(
            SamplerConfig {
                top_p: Some(0.5),
                ..open(5)
            },
            &logits,
            2000,
        );
        assert!(seen[1500..].iter().all(|c| *c == 0) && seen[1400..1500].iter().any(|c| *c > 0));
    }

    #[test]
    fn the_penalty_reaches_only_the_window_and_both_signs() {
        let config = SamplerConfig {
            temperature: 0.0,
            repetition_penalty: 2.0,
            repetition_window: 2,
            ..open(1)
        };
        let mut sampler = Sampler::new(config);
        assert_eq!(sampler.sample(&[1.0, 0.8, 0.1], &[0]), 1);
        assert_eq!(sampler.sample(&[1.0, 0.8, 0.1], &[0, 2, 2]), 0);
        assert_eq!(sampler.sample(&[-1.0, -1.5], &[0]), 1);
    }

    #[test]
    fn spared_tokens_are_not_penalised() {
        let config = SamplerConfig {
            temperature: 0.0,
            repetition_penalty: 2.0,
            ..open(1)
        };
        let mut sampler = Sampler::sparing(config, Arc::new(HashSet::from([0])));
        assert_eq!(sampler.sample(&[1.0, 0.8], &[0, 0]), 0);
        assert_eq!(sampler.sample(&[0.8, 1.0], &[0, 1]), 0);
    }
}
