//! Credentials of the gateway in places they must not go on from: a request that is forwarded, a record that is kept, a line of a
//! log; and what is kept of texts beside conversations ([`Beside`]). Knows nobody whom a credential lets in; that is `admit`.

mod beside;
mod credentials;
mod custody;
mod mask;

use weir_config::settings::Auth;
use weir_config::vocab::{Finding, SharedSecret};
use weir_storage::record::{AgentAction, SpanRecord};

pub use self::beside::Beside;
pub use self::credentials::{BYTES_MAX as CREDENTIAL_BYTES_MAX, Credentials, Piece, pieces_max};
use self::custody::Custody;
pub use self::custody::{KEY_PREFIX, TOKEN_PREFIX};

/// Finds and replaces the gateway's credentials. With authentication off there are none, and everything stays as it is.
pub struct Redaction {
    enabled: bool,
    admin: Option<SharedSecret>,
    custody: Custody,
}

impl Redaction {
    /// By these settings.
    pub fn new(auth: &Auth) -> Self {
        let admin = auth.admin_key.clone();
        let custody = Custody::new(admin.clone().filter(|_| auth.enabled));
        Self { enabled: auth.enabled, admin, custody }
    }

    /// Whether the gateway has credentials at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether a field of a request must not be passed on because it holds a credential addressed to us.
    pub fn keeps(&self, name: &[u8], value: &[u8]) -> bool {
        self.enabled && self.custody.in_field(name, value)
    }

    /// Whether a credential addressed to us stands in a request target, where proxies and logs would see it.
    pub fn is_exposed(&self, target: &str) -> bool {
        self.enabled && self.custody.in_target(target)
    }

    /// Takes the gateway's credentials out of a record before it is kept.
    pub fn mask_record(&self, span: &mut SpanRecord) {
        if self.enabled {
            mask::record(span, self.admin.as_ref());
        }
    }

    /// Takes the gateway's credentials out of what an agent reports, and of what was found in it.
    pub fn mask_action(&self, action: &mut AgentAction, findings: &mut [Finding]) {
        if self.enabled {
            mask::action(action, self.admin.as_ref());
            findings.iter_mut().for_each(|finding| mask::finding(finding, self.admin.as_ref()));
        }
    }

    /// Takes the gateway's credentials out of a text that repeats what a client said.
    pub fn mask_text(&self, text: &mut String) {
        if self.enabled {
            mask::replace(text, self.admin.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authentication_nothing_is_kept_back() {
        let off = Redaction::new(&Auth { enabled: false, admin_key: None, token_key_file: None, ..Auth::default() });
        assert!(!off.keeps(b"authorization", b"Bearer svc_x") && !off.is_exposed("/?key=svc_x"));
    }
}
