//! The crate's promises over real and made files. One binary, so that it links once.

mod accuracy;
mod broken;
mod chunks;
#[cfg(target_os = "linux")]
mod device;
mod file_kinds;
mod float_path;
mod golden;
mod kv_quality;
mod oracle;
mod pieces;
mod support;
mod template;
mod trial;
