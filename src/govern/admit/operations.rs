//! What a list of operations allows: `allowed_operations` in `access` of a tenant's `config`, and what is allowed where there is none.

use serde_json::Value;

use crate::exchange::{Family, KnownOperation, Scope};

/// What belongs to objects that the caller's tenant has made, of every family.
const OWN_OBJECTS: &str = "own_objects";
/// Everything.
const ALL: &str = "all";

/// A list of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// One bit for each family, by its place in [`Family::ALL`].
    families: u16,
    has_own_objects: bool,
}

/// What a list says of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    Allowed,
    /// It may be done to objects that the tenant has made.
    IfOwn,
    /// It may not.
    Denied,
}

const _: () = assert!(Family::ALL.len() <= u16::BITS as usize);

impl Operations {
    /// What calls that are lent the operator's provider key may do where nothing is said.
    pub const LENT: Self = Self { has_own_objects: true, ..Self::none() }
        .with(Family::Inference)
        .with(Family::Embeddings)
        .with(Family::TokenCounting)
        .with(Family::Models);

    const fn none() -> Self {
        Self { families: 0, has_own_objects: false }
    }

    const fn with(mut self, family: Family) -> Self {
        self.families |= 1 << family as u16;
        self
    }

    /// Reads a list of names.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn read(path: &str, value: &Value) -> Result<Self, String> {
        let names = value.as_array().and_then(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let mut list = Self::none();
        for name in names.ok_or_else(|| refused(path))? {
            let family = Family::ALL.iter().find(|family| family.as_str() == name);
            list = match (name, family) {
                (ALL, _) => Self { families: u16::MAX, has_own_objects: true },
                (OWN_OBJECTS, _) => Self { has_own_objects: true, ..list },
                (_, Some(family)) => list.with(*family),
                (_, None) => return Err(refused(path)),
            };
        }
        Ok(list)
    }

    /// Whether it names this family.
    pub const fn names(self, family: Family) -> bool {
        self.families & (1 << family as u16) != 0
    }

    /// What it says of an operation; of one that is not known too.
    pub fn verdict(self, operation: Option<&KnownOperation<'_>>) -> Verdict {
        let family = operation.map_or(Family::Other, |known| known.family);
        if self.names(family) {
            return Verdict::Allowed;
        }
        // Nobody makes a model that is trained, or one of a server, for itself alone.
        let is_of_one = !matches!(family, Family::FineTuning | Family::ModelFiles | Family::Other);
        match operation.map(|known| known.scope) {
            Some(Scope::Create | Scope::Object(_)) if self.has_own_objects && is_of_one => Verdict::IfOwn,
            _ => Verdict::Denied,
        }
    }
}

fn refused(path: &str) -> String {
    let names: Vec<&str> = Family::ALL.iter().map(|family| family.as_str()).chain([OWN_OBJECTS, ALL]).collect();
    format!("`{path}` has to be a list of names of operations; there are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::exchange::operation;

    fn verdict(list: Operations, method: &str, path: &str) -> Verdict {
        list.verdict(operation(method, path).as_ref())
    }

    #[test]
    fn what_is_lent_answers_and_keeps_to_its_tenants_objects() {
        for (method, path, expected) in [
            ("POST", "/v1/chat/completions", Verdict::Allowed),
            ("POST", "/v1/responses", Verdict::Allowed),
            ("POST", "/v1/embeddings", Verdict::Allowed),
            ("POST", "/v1/messages/count_tokens", Verdict::Allowed),
            ("GET", "/v1/models", Verdict::Allowed),
            ("POST", "/v1/files", Verdict::IfOwn),
            ("GET", "/v1/files/f", Verdict::IfOwn),
            ("GET", "/v1/responses/r", Verdict::IfOwn),
            ("GET", "/v1/files", Verdict::Denied),
            ("GET", "/v1/batches", Verdict::Denied),
            ("POST", "/v1/fine_tuning/jobs", Verdict::Denied),
            ("DELETE", "/v1/models/m", Verdict::Denied),
            ("GET", "/v1/organization/api_keys", Verdict::Denied),
            ("POST", "/v1/%63hat/completions", Verdict::Denied),
        ] {
            assert_eq!(verdict(Operations::LENT, method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_list_allows_what_it_names_and_no_more() {
        let files = Operations::read("p", &json!(["files"])).unwrap();
        assert_eq!(verdict(files, "GET", "/v1/files"), Verdict::Allowed);
        assert_eq!(verdict(files, "POST", "/v1/chat/completions"), Verdict::Denied);
        let all = Operations::read("p", &json!(["all"])).unwrap();
        assert_eq!(verdict(all, "GET", "/v1/organization/api_keys"), Verdict::Allowed);
        assert_eq!(verdict(Operations::read("p", &json!([])).unwrap(), "GET", "/v1/models"), Verdict::Denied);
        for wrong in [json!("files"), json!(["file"]), json!([1])] {
            assert!(
                Operations::read("config.x", &wrong).unwrap_err().contains("`config.x` has to be a list"),
                "{wrong}"
            );
        }
    }
}
