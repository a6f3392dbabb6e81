//! The store's promises, one binary. Each module is one subject, each test one promise.

mod blocks;
mod branches;
mod budget;
mod cache;
mod changing;
mod conversations;
mod crash;
mod damage;
mod data_folder;
mod fixtures;
mod kill;
mod killed;
mod opening;
mod privacy;
mod reading;
mod refs;
mod replies;
mod sealed;
mod search;
mod support;
mod unsent;
mod unwritable;
