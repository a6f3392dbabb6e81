//! Law 7: titles, token counts and previews never evict, extend or re-key a conversation's blocks.

use tests::{Chat, Subject, prose};

#[test]
fn previews_and_counts_change_nothing() {
    let mut chat = Chat::new(Subject::TINY);
    let mut twin = Chat::new(Subject::TINY);
    for chat in [&mut chat, &mut twin] {
        chat.say(&prose(0, 100));
        chat.say(&prose(1, 100));
    }
    let message = chat.user_messages()[0].clone();
    let before = chat.engine().cache_stats().expect("stats");
    for words in 0..50 {
        chat.preview(Some(&message), &prose(2, words + 1));
        chat.preview(None, &prose(3, words + 1));
        chat.context();
    }
    let after = chat.engine().cache_stats().expect("stats");
    assert_eq!(before.num_blocks, after.num_blocks);
    assert_eq!(before.file_bytes, after.file_bytes);
    let (next, expected) = (chat.say("And then?"), twin.say("And then?"));
    assert_eq!(next.prefill, expected.prefill);
    assert_eq!(next.ids, expected.ids);
}
