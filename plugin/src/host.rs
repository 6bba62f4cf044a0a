//! The callbacks of the server, which it gives once before the first call.

use crate::abi_types::AbiHost;
use std::sync::OnceLock;

pub static HOST: OnceLock<AbiHost> = OnceLock::new();
