//! Words to fill prompts with.

use crate::Chat;

/// From "The Time Machine" by H. G. Wells (1895, public domain).
const PROSE: &str = "The Time Traveller (for so it will be convenient to speak of him) was expounding a recondite matter \
to us. His pale grey eyes shone and twinkled, and his usually pale face was flushed and animated. The fire burnt \
brightly, and the soft radiance of the incandescent lights in the lilies of silver caught the bubbles that flashed and \
passed in our glasses. Our chairs, being his patents, embraced and caressed us rather than submitted to be sat upon, \
and there was that luxurious after-dinner atmosphere, when thought runs gracefully free of the trammels of precision. \
And he put it to us in this way, marking the points with a lean forefinger, as we sat and lazily admired his \
earnestness over this new paradox (as we thought it) and his fecundity.";

/// About `num_words` words of prose, which begin differently for each `start`.
pub fn prose(start: usize, num_words: usize) -> String {
    let words: Vec<&str> = PROSE.split_whitespace().collect();
    (0..num_words)
        .map(|i| words[(start * 17 + i) % words.len()])
        .collect::<Vec<_>>()
        .join(" ")
}

/// A message that makes the next prompt exactly `num_tokens` long: digits are one token each.
pub fn message_for_prompt(chat: &Chat, num_tokens: u32) -> String {
    let mut text = String::from("Digits:");
    loop {
        let missing = num_tokens as i64 - i64::from(chat.preview(None, &text).of);
        assert!(
            missing >= 0,
            "the prompt is already longer than {num_tokens} tokens"
        );
        if missing == 0 {
            return text;
        }
        text.extend((0..missing).map(|i| char::from(b'0' + (i * 7 % 10) as u8)));
    }
}
