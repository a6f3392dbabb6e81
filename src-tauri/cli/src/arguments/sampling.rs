//! Sampling flags, with the conventions of other programs: 0 and -1 turn a setting off if they are not meaningful
//! values.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::RangeInclusive;

use clap::Args;

/// Sampling of one turn; overrides the conversation's settings.
#[derive(Clone, Debug, Args)]
pub(crate) struct SamplingFlags {
    /// 0 always takes the most likely token, more is more varied
    #[arg(long, value_name = "T", value_parser = |text: &str| number(text, 0.0..=5.0))]
    pub(crate) temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 or -1 is off
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = count)]
    pub(crate) top_k: Option<u32>,
    /// Keep the most likely tokens that together reach P; 1 is off
    #[arg(long, value_name = "P", value_parser = |text: &str| number(text, 0.01..=1.0))]
    pub(crate) top_p: Option<f32>,
    /// Keep tokens at least P times as likely as the most likely one; 0 is off
    #[arg(long, value_name = "P", value_parser = |text: &str| number(text, 0.0..=1.0))]
    pub(crate) min_p: Option<f32>,
    /// Make tokens less likely that came lately; 1 is off, and so is 0
    #[arg(long, value_name = "R", value_parser = penalty)]
    pub(crate) repeat_penalty: Option<f32>,
    /// Text that ends the reply, not shown; \\n is a line end, \\t a tab, \\\\ a backslash. May be given several times, and holds
    /// instead of the conversation's
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = stop)]
    pub(crate) stop: Vec<String>,
}

fn number(text: &str, range: RangeInclusive<f32>) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    match range.contains(&number) {
        true => Ok(number),
        false => Err(format!(
            "it has to be from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

fn penalty(text: &str) -> Result<f32, String> {
    match number(text, 0.0..=2.0)? {
        0.0 => Ok(1.0),
        low if low < 0.5 => Err("it has to be from 0.5 to 2, or 0 for none".into()),
        penalty => Ok(penalty),
    }
}

/// Parses a count; 0, -1 and -2 give 0, which is off.
pub(super) fn count(text: &str) -> Result<u32, String> {
    let count: i64 = text
        .parse()
        .map_err(|_| "it is not a whole number".to_owned())?;
    match count {
        -2..=0 => Ok(0),
        count => u32::try_from(count).map_err(|_| "it has to be 1 or more, or 0 for none".into()),
    }
}

/// Parses the most tokens of a reply. -1 and -2 give 0, which is no limit; 0 itself is refused, since a reply has at
/// least one token.
pub(super) fn limit(text: &str) -> Result<u32, String> {
    match (text, count(text)) {
        ("-1" | "-2", _) => Ok(0),
        (_, Ok(count)) if count > 0 => Ok(count),
        _ => Err("it has to be a whole number from 1 on, or -1 for no limit".into()),
    }
}

/// Parses a seed; -1 gives a random one.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    match text {
        // `RandomState` has random keys.
        "-1" => Ok(RandomState::new().build_hasher().finish()),
        text => text
            .parse()
            .map_err(|_| "it has to be a whole number, or -1 for a random one".into()),
    }
}

/// Parses a stop string with the escape sequences `\n`, `\t` and `\\`.
fn stop(text: &str) -> Result<String, String> {
    let mut stop = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let meant = match (c, rest.peek()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('\\')) => Some('\\'),
            _ => None,
        };
        if meant.is_some() {
            rest.next();
        }
        stop.push(meant.unwrap_or(c));
    }
    match stop.is_empty() {
        true => Err("it is empty".into()),
        false => Ok(stop),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Arguments, ChatCommand, Command, TurnFlags};

    fn flags(words: &[&str]) -> Result<TurnFlags, String> {
        let words = ["reprise-cli", "chat", "send", "c", "hi"]
            .iter()
            .chain(words);
        match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
            Ok(Command::Chat {
                command: Some(ChatCommand::Send { flags, .. }),
                ..
            }) => Ok(flags),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn sampling_flags_mean_what_they_mean_in_other_programs() {
        let of = |words: &[&str]| flags(words).expect("flags");
        assert_eq!(of(&["--top-k", "40"]).sampling.top_k, Some(40));
        for off in ["0", "-1"] {
            assert_eq!(of(&["--top-k", off]).sampling.top_k, Some(0));
        }
        assert_eq!(of(&["--max-tokens", "-1"]).max_tokens, Some(0));
        assert_eq!(of(&["--seed", "0"]).seed, Some(0));
        let random = || of(&["--seed", "-1"]).seed.expect("a seed");
        assert_ne!(random(), random());
        assert_eq!(
            of(&["--repeat-penalty", "0"]).sampling.repeat_penalty,
            Some(1.0)
        );
        let all = of(&[
            "--temperature",
            "0.5",
            "--top-p",
            "0.9",
            "--min-p",
            "0.05",
            "--stop",
            "\\n\\nUser:",
            "--stop",
            "C:\\\\new",
        ]);
        assert_eq!(
            (
                all.sampling.temperature,
                all.sampling.top_p,
                all.sampling.min_p
            ),
            (Some(0.5), Some(0.9), Some(0.05))
        );
        assert_eq!(all.sampling.stop, ["\n\nUser:", "C:\\new"]);
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_a_word() {
        for (words, why) in [
            (["--temperature", "7"], "from 0 to 5"),
            (["--temperature", "hot"], "not a number"),
            (["--top-p", "0"], "from 0.01 to 1"),
            (["--min-p", "1.5"], "from 0 to 1"),
            (["--repeat-penalty", "0.1"], "0 for none"),
            (["--max-tokens", "0"], "-1 for no limit"),
            (["--top-k", "1.5"], "not a whole number"),
            (["--top-k", "-7"], "1 or more"),
            (["--seed", "x"], "-1 for a random one"),
            (["--stop", ""], "it is empty"),
        ] {
            let error = flags(&words).expect_err("refused");
            assert!(error.contains(why), "{words:?}: {error}");
        }
    }
}
