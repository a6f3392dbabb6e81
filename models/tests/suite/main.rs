//! The crate's promises over real and made files. One binary, so that it links once.

mod broken;
mod chunks;
mod golden;
mod oracle;
mod support;
mod template;
