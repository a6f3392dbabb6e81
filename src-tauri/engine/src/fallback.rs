//! Chooses the model that answers in a conversation. If the conversation's model is missing, renamed or unusable, the
//! default model answers instead, a turn event reports this, and the conversation keeps that model.

use store::Conversation;

use crate::intake::Accepted;
use crate::turn::TurnEvent;
use crate::worker::Worker;
use crate::{Error, Result, catalog};

/// A model that could not be loaded, with the reason.
#[derive(Debug)]
pub(crate) struct Refused {
    wanted: String,
    code: String,
    reason: String,
}

impl Worker {
    /// Loads the model for a turn's conversation, emits an event if it is a fallback, and stores it as the
    /// conversation's model, so that models added later do not change it.
    pub(crate) fn load_for_turn(&mut self, turn: &Accepted) -> Result<Conversation> {
        let mut conversation = self.conversation(&turn.conversation)?;
        let refused = self.load_for(&conversation)?;
        let cache = self.cache.as_ref().ok_or(Error::Stopped)?;
        let model = cache.model().name().to_owned();
        if conversation.model.as_ref() != Some(&model) {
            let mut history = self.desk.history();
            history.set_model(&conversation.id, Some(&model))?;
            conversation.model = Some(model.clone());
        }
        if let Some(Refused {
            wanted,
            code,
            reason,
        }) = refused
        {
            turn.emit(TurnEvent::ModelFallback {
                wanted,
                code,
                reason,
                model,
            });
        }
        Ok(conversation)
    }

    /// Loads the conversation's model, or the default one. If that model cannot be used, loads the fallback and returns
    /// the reason.
    pub(crate) fn load_for(&mut self, conversation: &Conversation) -> Result<Option<Refused>> {
        let wanted = match &conversation.model {
            Some(model) => Some(model.clone()),
            None => catalog::chosen(&self.desk.history())?,
        };
        let Some(wanted) = wanted else {
            self.load_first(None)?;
            return Ok(None);
        };
        match self.load(&wanted) {
            Ok(()) => Ok(None),
            Err(error) if error.is_of_model_file() => {
                tracing::info!(%error, wanted, "another model answers");
                let refused = Refused {
                    code: error.code().to_owned(),
                    reason: error.to_string(),
                    wanted,
                };
                self.load_first(Some(&refused.wanted))?;
                Ok(Some(refused))
            }
            Err(error) => Err(error),
        }
    }

    /// Loads the default model unless a model is loaded.
    pub(crate) fn load_any(&mut self) -> Result<()> {
        match self.cache {
            Some(_) => Ok(()),
            None => self.load_first(None),
        }
    }

    /// Loads the first usable model that fits into memory, trying the chosen default first. It becomes the chosen
    /// default, so that a file added later does not change it.
    fn load_first(&mut self, except: Option<&str>) -> Result<()> {
        let candidates = catalog::in_order(&self.desk.history(), &self.models_folder)?;
        let chosen = catalog::chosen(&self.desk.history())?;
        let mut full = None;
        for model in candidates
            .iter()
            .filter(|model| except != Some(&model.name))
        {
            match self.load(&model.name) {
                Ok(()) => return catalog::set_default(&mut self.desk.history(), &model.name),
                Err(error) if error.is_of_model_file() => {
                    tracing::debug!(%error, "not this one");
                }
                // This model was not chosen by the user; a smaller one may fit.
                Err(error @ Error::MemoryFull { .. }) if chosen.as_ref() != Some(&model.name) => {
                    full.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(full.unwrap_or_else(|| catalog::none_usable(&candidates, &self.models_folder)))
    }
}
