//! Deleting a conversation: here it is final, there is nobody to undo it.

use serde_json::json;
use store::ConversationId;

use crate::app::{App, now_ms};
use crate::error::Result;
use crate::output::Output;

pub(super) fn conversation(app: &App, id: &ConversationId, output: &Output) -> Result<()> {
    let now_ms = now_ms();
    let gone = {
        let mut history = app.history();
        history.delete_conversation(id, now_ms)?;
        // "Before" excludes this very millisecond.
        history.purge_deleted(now_ms + 1)?
    };
    // The words first, then the blocks: the other order could leave refs without words to explain them.
    app.engine()?.forget(gone)?;
    output.line(&json!({ "conversation": id, "deleted": true }), || {
        format!("deleted {id}")
    })
}
