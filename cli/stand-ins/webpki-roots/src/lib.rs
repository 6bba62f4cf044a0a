//! Stands in for webpki-roots. The mysql crate trusts all that this list holds, beside the file that it is
//! given. A database server is to be trusted by the file that its owner named, or by the system's list.

use rustls_pki_types::TrustAnchor;

pub const TLS_SERVER_ROOTS: &[TrustAnchor<'static>] = &[];
