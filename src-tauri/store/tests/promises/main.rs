//! The store's promises, one binary. Each module is one subject, each test one promise.

mod conversations;
mod data_folder;
mod kill;
mod opening;
mod replies;
mod search;
mod support;
