//! Tenants, keys and tokens, made the way an operator makes them: over the API with the bootstrap key.

use serde_json::{Value, json};

use super::{Answer, Call, Gateway, call};

/// `auth.admin_key` of these tests.
pub(crate) const BOOTSTRAP: &str = "canary-bootstrap-0123456789";
/// The block of configuration that goes with it.
pub(crate) const AUTH: &str = "auth: {enabled: true, admin_key: canary-bootstrap-0123456789}";

impl Call {
    pub(crate) fn put(target: &str, body: &Value) -> Self {
        Self::with_method("PUT", target, body.to_string())
    }

    pub(crate) fn delete(target: &str) -> Self {
        Self::with_method("DELETE", target, "")
    }

    /// The same with a key in `Authorization`.
    pub(crate) fn key(self, key: &str) -> Self {
        self.field("Authorization", &format!("Bearer {key}"))
    }
}

impl Gateway {
    /// One call with the bootstrap key.
    pub(crate) fn admin(&self, request: Call) -> Answer {
        call(self.addr, request.key(BOOTSTRAP).bytes())
    }

    /// A fresh tenant's id.
    pub(crate) fn tenant(&self, name: &str) -> String {
        let answer = self.admin(Call::post("/api/v1/tenants", json!({ "name": name }).to_string()));
        assert_eq!(answer.status, 201, "{}", answer.text());
        text(&answer, "id")
    }

    /// A fresh key's id and text.
    pub(crate) fn key(&self, tenant: &str, role: &str) -> (String, String) {
        let body = json!({ "tenant_id": tenant, "name": role, "role": role });
        let answer = self.admin(Call::post("/api/v1/auth/keys", body.to_string()));
        assert_eq!(answer.status, 201, "{}", answer.text());
        (text(&answer, "id"), text(&answer, "key"))
    }

    /// A tenant's token.
    pub(crate) fn token(&self, tenant: &str) -> String {
        let answer = self.admin(Call::get(&format!("/api/v1/tenants/{tenant}/token")));
        assert_eq!(answer.status, 200, "{}", answer.text());
        text(&answer, "token")
    }
}

/// A text field of a JSON answer.
pub(crate) fn text(answer: &Answer, field: &str) -> String {
    answer.json()[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", answer.text())).to_owned()
}
