//! Who may ask what of the gateway's own paths.
//!
//! Invariant: the answer is the route table's; what is not listed there needs an identity before it is even called unknown.

use std::sync::OnceLock;

use weir_config::vocab::Role;

use super::routes;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    Open,
    /// At least this role.
    Role(Role),
}

/// For everybody, without a key.
pub(super) const OPEN: Access = Access::Open;
/// For readers of a tenant's data.
pub(super) const VIEWER: Access = Access::Role(Role::Viewer);
/// For those who send traffic and report actions.
pub(super) const OPERATOR: Access = Access::Role(Role::Operator);
/// For those who administer the gateway.
pub(super) const ADMIN: Access = Access::Role(Role::Admin);

/// A row of the table as far as it matters here.
struct Rule {
    method: String,
    path: &'static str,
    access: Access,
}

/// What `method` on `path`, one of the gateway's own, asks of its caller. HEAD asks what GET asks; a method that the path
/// does not answer asks the least that any of its methods does.
pub fn access(method: &str, path: &str) -> Access {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let rule = |route: super::route::Route| Rule {
            method: route.method.as_str().to_owned(),
            path: route.path,
            access: route.access,
        };
        routes::table().into_iter().map(rule).collect()
    });
    let method = if method == "HEAD" { "GET" } else { method };
    let here = || rules.iter().filter(|rule| fits(rule.path, path));
    // A literal path goes before a template that fits as well, as it does in the router.
    let exact = here().filter(|rule| rule.method == method).min_by_key(|rule| rule.path.matches('{').count());
    exact.map(|rule| rule.access).or_else(|| here().map(|rule| rule.access).min()).unwrap_or(VIEWER)
}

/// Whether `path` is what the template stands for.
fn fits(template: &str, path: &str) -> bool {
    let (mut expected, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (expected.next(), given.next()) {
            (None, None) => return true,
            (Some(expected), Some(given)) if expected == given || is_name(expected) && !given.is_empty() => {}
            _ => return false,
        }
    }
}

fn is_name(segment: &str) -> bool {
    segment.starts_with('{') && segment.ends_with('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_decides_and_what_it_does_not_know_needs_an_identity() {
        for (method, path, expected) in [
            ("GET", "/health", OPEN),
            ("HEAD", "/health", OPEN),
            ("PUT", "/health", OPEN),
            ("GET", "/health/", VIEWER),
            ("GET", "/api-doc/openapi.json", OPEN),
            ("GET", "/swagger-ui", OPEN),
            ("GET", "/swagger-ui/swagger-ui.css", OPEN),
            ("GET", "/swagger-ui/a/b", VIEWER),
            ("POST", "/api/v1/traces/1/actions", OPERATOR),
            ("POST", "/api/v1/reports/generate", OPERATOR),
            ("GET", "/api/v1/reports/generate", VIEWER),
            ("GET", "/api/v1/audit", ADMIN),
            ("DELETE", "/api/v1/audit", ADMIN),
            ("GET", "/metrics", VIEWER),
            ("GET", "/api/v1/traces", VIEWER),
            ("HEAD", "/api/v1/traces/1", VIEWER),
            ("GET", "/api/v1/traces/", VIEWER),
            ("GET", "/api/v1/nothing", VIEWER),
            ("GET", "/api/v1/../../health", VIEWER),
        ] {
            assert_eq!(access(method, path), expected, "{method} {path}");
        }
    }
}
