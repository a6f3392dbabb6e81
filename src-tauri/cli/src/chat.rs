//! `chat`: conversations, their turns and their words.

mod delete;
mod interrupt;
mod progress;
mod show;
mod talk;
mod turn;

use std::io::Read;
use std::path::PathBuf;

use engine::{Shorten, Turn, TurnOptions};
use serde_json::json;
use store::{ConversationId, Format, MessageId, NewConversation, WhenFull};

use crate::app::{App, now_ms};
use crate::arguments::{ChatCommand, ExportFormat, FullContext, TalkFlags, TurnFlags};
use crate::error::{Error, Result};
use crate::output::Output;

/// Most hits that a search prints.
const SEARCH_LIMIT: u32 = 100;

pub(crate) fn run(command: ChatCommand, data_dir: Option<PathBuf>, output: &Output) -> Result<()> {
    match command {
        ChatCommand::Send {
            conversation,
            text,
            parent,
            flags,
        } => {
            let options = options(&flags);
            let turn = Turn::Send {
                conversation: conversation.into(),
                parent: parent.map(MessageId::from),
                text: words(text)?,
                options,
            };
            turn::run(&app(data_dir, &flags)?, turn, output)
        }
        ChatCommand::Edit {
            conversation,
            message,
            text,
            flags,
        } => {
            let options = options(&flags);
            let turn = Turn::Edit {
                conversation: conversation.into(),
                message: message.into(),
                text: words(text)?,
                options,
            };
            turn::run(&app(data_dir, &flags)?, turn, output)
        }
        ChatCommand::Regenerate {
            conversation,
            message,
            flags,
        } => {
            let options = options(&flags);
            let turn = Turn::Regenerate {
                conversation: conversation.into(),
                message: message.into(),
                options,
            };
            turn::run(&app(data_dir, &flags)?, turn, output)
        }
        ChatCommand::Continue {
            conversation,
            message,
            flags,
        } => {
            let app = app(data_dir, &flags)?;
            let conversation = conversation.into();
            let turn = Turn::Continue {
                message: match message {
                    Some(message) => message.into(),
                    None => leaf(&app, &conversation)?,
                },
                conversation,
                options: options(&flags),
            };
            turn::run(&app, turn, output)
        }
        ChatCommand::Compact {
            conversation,
            flags,
        } => shorten(conversation, Shorten::Compact, &flags, data_dir, output),
        ChatCommand::DropOldest {
            conversation,
            flags,
        } => shorten(conversation, Shorten::DropOldest, &flags, data_dir, output),
        other @ (ChatCommand::Show { .. }
        | ChatCommand::List
        | ChatCommand::Search { .. }
        | ChatCommand::Export { .. }) => {
            run_without_model(other, &App::open_to_read(data_dir)?, output)
        }
        other => run_without_model(other, &App::open(data_dir, None)?, output),
    }
}

/// The interactive chat.
pub(crate) fn talk(flags: TalkFlags, data_dir: Option<PathBuf>, output: &Output) -> Result<()> {
    talk::run(&app(data_dir, &flags.turn)?, flags, output)
}

/// The leaf of the branch that was used last.
fn leaf(app: &App, id: &ConversationId) -> Result<MessageId> {
    let conversation = app.history().conversation(id)?;
    conversation.active_leaf.ok_or_else(|| {
        Error::InvalidArgument("nothing has been said in this conversation; send a message".into())
    })
}

/// The data folder, with the engine as the flags want it.
fn app(data_dir: Option<PathBuf>, flags: &TurnFlags) -> Result<App> {
    Ok(App::open(data_dir, flags.threads)?
        .with_pool(flags.pool_bytes)
        .with_kv(flags.kv)
        .with_device(flags.device))
}

/// What needs the history only.
fn run_without_model(command: ChatCommand, app: &App, output: &Output) -> Result<()> {
    match command {
        ChatCommand::New { system, model } => new(app, system, model, output),
        ChatCommand::Show { conversation } => show::conversation(app, &conversation.into(), output),
        ChatCommand::WhenFull { conversation, what } => {
            when_full(app, &conversation.into(), what, output)
        }
        ChatCommand::Model { conversation, name } => {
            set_model(app, &conversation.into(), &name, output)
        }
        ChatCommand::Rename {
            conversation,
            title,
        } => rename(app, &conversation.into(), &title, output),
        ChatCommand::System { conversation, text } => {
            set_system(app, &conversation.into(), &words(text)?, output)
        }
        ChatCommand::List => show::list(app, output),
        ChatCommand::Search { text } => search(app, &text, output),
        ChatCommand::Delete { conversation } => {
            delete::conversation(app, &conversation.into(), output)
        }
        ChatCommand::Export {
            conversation,
            format,
        } => export(app, &conversation.into(), format, output),
        ChatCommand::Send { .. }
        | ChatCommand::Edit { .. }
        | ChatCommand::Regenerate { .. }
        | ChatCommand::Continue { .. }
        | ChatCommand::Compact { .. }
        | ChatCommand::DropOldest { .. } => {
            unreachable!("a turn needs a model")
        }
    }
}

fn shorten(
    conversation: String,
    how: Shorten,
    flags: &TurnFlags,
    data_dir: Option<PathBuf>,
    output: &Output,
) -> Result<()> {
    let turn = Turn::Shorten {
        conversation: conversation.into(),
        how,
        options: options(flags),
    };
    turn::run(&app(data_dir, flags)?, turn, output)
}

fn options(flags: &TurnFlags) -> TurnOptions {
    TurnOptions {
        greedy: flags.greedy,
        seed: flags.seed,
        max_tokens: flags.max_tokens,
        temperature: flags.sampling.temperature,
        top_k: flags.sampling.top_k,
        top_p: flags.sampling.top_p,
        min_p: flags.sampling.min_p,
        repetition_penalty: flags.sampling.repeat_penalty,
        stop: (!flags.sampling.stop.is_empty()).then(|| flags.sampling.stop.clone()),
    }
}

/// The text itself, or standard input for `-`, without the line end that closes it.
fn words(text: String) -> Result<String> {
    if text != "-" {
        return Ok(text);
    }
    let mut input = String::new();
    std::io::stdin()
        .read_to_string(&mut input)
        .map_err(|error| {
            Error::InvalidArgument(format!("standard input cannot be read as text: {error}"))
        })?;
    Ok(input
        .strip_suffix('\n')
        .map(|text| text.strip_suffix('\r').unwrap_or(text))
        .unwrap_or(&input)
        .to_owned())
}

fn new(app: &App, system: Option<String>, model: Option<String>, output: &Output) -> Result<()> {
    if let Some(model) = &model {
        // A wrong name is told now, not at the first message.
        app.require_model(model)?;
    }
    let new = NewConversation {
        system_prompt: system.unwrap_or_default(),
        model,
        ..NewConversation::default()
    };
    let conversation = app.history().create_conversation(new, now_ms())?;
    output.line(&json!({ "conversation": conversation.id }), || {
        conversation.id.to_string()
    })
}

fn rename(app: &App, id: &ConversationId, title: &str, output: &Output) -> Result<()> {
    let title = title.trim();
    if title.is_empty() {
        return Err(Error::InvalidArgument(
            "the title is empty; write something".into(),
        ));
    }
    app.history().rename(id, title)?;
    let title = app.history().conversation(id)?.title;
    output.line(&json!({ "conversation": id, "title": title }), || {
        format!("{id}  {title}")
    })
}

fn set_system(app: &App, id: &ConversationId, text: &str, output: &Output) -> Result<()> {
    app.history().set_system_prompt(id, text)?;
    output.line(
        &json!({ "conversation": id, "system_prompt": text }),
        || id.to_string(),
    )
}

fn when_full(app: &App, id: &ConversationId, what: FullContext, output: &Output) -> Result<()> {
    let when_full = match what {
        FullContext::Ask => WhenFull::Ask,
        FullContext::Compact => WhenFull::Compact,
        FullContext::DropOldest => WhenFull::DropOldest,
        FullContext::Stop => WhenFull::Stop,
    };
    app.history().set_when_full(id, when_full)?;
    output.line(
        &json!({ "conversation": id, "when_full": when_full }),
        || id.to_string(),
    )
}

fn set_model(app: &App, id: &ConversationId, name: &str, output: &Output) -> Result<()> {
    app.history().conversation(id)?;
    app.require_model(name)?;
    app.history().set_model(id, Some(name))?;
    output.line(&json!({ "conversation": id, "model": name }), || {
        format!("{name} answers from now on")
    })
}

fn search(app: &App, text: &str, output: &Output) -> Result<()> {
    let hits = app.history().search(text, SEARCH_LIMIT)?;
    hits.iter().try_for_each(|hit| {
        output.line(hit, || {
            let snippet = &hit.snippet;
            match &hit.message {
                Some(message) => format!(
                    "{}  {message}\n    {}: {snippet}",
                    hit.conversation, hit.title
                ),
                None => format!("{}\n    {snippet}", hit.conversation),
            }
        })
    })
}

fn export(
    app: &App,
    id: &ConversationId,
    format: Option<ExportFormat>,
    output: &Output,
) -> Result<()> {
    let format = match (format, output.json) {
        (Some(ExportFormat::Json), _) | (None, true) => Format::Json,
        (Some(ExportFormat::Md), _) | (None, false) => Format::Markdown,
    };
    let text = app.history().export(id, format)?;
    if let (Format::Json, true) = (format, output.json) {
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| Error::Internal(error.to_string()))?;
        return output.object(&value);
    }
    let text = format!("{}\n", text.strip_suffix('\n').unwrap_or(&text));
    match format {
        Format::Json => output.json_text(&text),
        Format::Markdown => output.text(&text),
    }
}
