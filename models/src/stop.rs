//! Stop strings, which may span tokens.

/// Watches streamed text for strings that end a reply. Text that could be the beginning of one is held back until it
/// is known not to be.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// Empty strings are ignored.
    pub fn new(stops: Vec<String>) -> StopStrings {
        let stops = stops.into_iter().filter(|s| !s.is_empty()).collect();
        StopStrings {
            stops,
            held: String::new(),
            stopped: false,
        }
    }

    /// Continues after `text`, in which no stop string is searched. Returns how many bytes at its end are held back
    /// from now on, since they could begin a stop string.
    pub fn resume(&mut self, text: &str) -> usize {
        let held = self.overlap(text);
        self.held = text[text.len() - held..].to_owned();
        self.stopped = false;
        held
    }

    /// Takes new text; gives what is safe to show, and whether a stop string was met. The stop string itself and what
    /// follows it are never shown.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.stopped {
            return (String::new(), true);
        }
        self.held.push_str(text);
        if let Some(at) = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()))
            .min()
        {
            self.stopped = true;
            let mut shown = std::mem::take(&mut self.held);
            shown.truncate(at);
            return (shown, true);
        }
        let keep = self.overlap(&self.held);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Length in bytes of the longest suffix of `text` that is a prefix of a stop string.
    fn overlap(&self, text: &str) -> usize {
        let ends = self.stops.iter().map(|stop| overlap(text, stop));
        ends.max().unwrap_or(0)
    }

    /// The text still held back when the reply ends otherwise.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Length of the longest end of `text` that begins `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest)
        .rev()
        .find(|&n| stop.is_char_boundary(n) && text.as_bytes().ends_with(&stop.as_bytes()[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut watch = StopStrings::new(stops.iter().map(|s| s.to_string()).collect());
        let mut shown = String::new();
        for piece in pieces {
            let (text, stopped) = watch.push(piece);
            shown.push_str(&text);
            if stopped {
                return (shown, true);
            }
        }
        shown.push_str(&watch.finish());
        (shown, false)
    }

    #[test]
    fn a_stop_string_spanning_pieces_is_never_shown() {
        assert_eq!(
            run(&["\nUser:"], &["Hi", "\nUs", "er", ": more"]),
            ("Hi".into(), true)
        );
    }

    #[test]
    fn a_false_start_is_shown_in_the_end() {
        assert_eq!(
            run(&["\nUser:"], &["a\n", "Us", "ual"]),
            ("a\nUsual".into(), false)
        );
        assert_eq!(run(&["abc"], &["ab"]), ("ab".into(), false));
    }

    #[test]
    fn what_was_cut_inside_a_stop_string_goes_on_inside_it() {
        let text = "é aab aaab 日本 x";
        for stop in ["aaab", "日本", "aab", "xyz", "é ", " x"] {
            let (whole, stopped) = run(&[stop], &[text]);
            let cuts = text.char_indices().map(|(at, _)| at);
            for cut in cuts.filter(|at| !text[..*at].contains(stop)) {
                let mut watch = StopStrings::new(vec![stop.to_owned()]);
                let held = watch.resume(&text[..cut]);
                let mut shown = text[..cut - held].to_owned();
                let (rest, has_stopped) = watch.push(&text[cut..]);
                shown.push_str(&rest);
                shown.push_str(&watch.finish());
                // When a stop string was found, the held text is that after it.
                shown.truncate(whole.len());
                assert_eq!(
                    (shown, has_stopped),
                    (whole.clone(), stopped),
                    "{stop} {cut}"
                );
            }
        }
    }

    #[test]
    fn the_earliest_of_several_wins_and_empty_ones_are_ignored() {
        assert_eq!(run(&["", "z", "b"], &["abz"]), ("a".into(), true));
        assert_eq!(run(&[""], &["x"]), ("x".into(), false));
    }

    #[test]
    fn every_cut_of_a_text_gives_the_same_result() {
        let text = "é aab aaab 日本";
        for stop in ["aaab", "日本", "aab", "xyz", "é "] {
            let whole = run(&[stop], &[text]);
            let cuts: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
            for &a in &cuts {
                for &b in cuts.iter().filter(|&&b| b >= a) {
                    assert_eq!(
                        run(&[stop], &[&text[..a], &text[a..b], &text[b..]]),
                        whole,
                        "{stop} {a} {b}"
                    );
                }
            }
        }
    }
}
