//! Access to the gateway's own paths: which role may call which.
//!
//! Invariant: the answer is the route table's; what is not listed there needs an identity before it is even called unknown.

use std::sync::OnceLock;

use weir_config::vocab::Role;

use super::routes;
use crate::control::{Access, Terms};

/// For everybody, without a key.
pub(super) const OPEN: Access = Access::Open;
/// For readers of a tenant's data.
pub(super) const VIEWER: Access = Access::Role(Role::Viewer);
/// For those who send traffic and report actions.
pub(super) const OPERATOR: Access = Access::Role(Role::Operator);
/// For those who administer the gateway.
pub(super) const ADMIN: Access = Access::Role(Role::Admin);

/// Of a path that is not in the table.
const UNKNOWN: Terms = Terms { access: VIEWER, limited: true, urgent: false, body_bytes_max: None };

/// A row of the table as far as it matters here.
struct Rule {
    method: String,
    path: &'static str,
    terms: Terms,
}

/// On which terms `method` on `path`, one of the gateway's own, is let in. HEAD is let in as GET; a method that the path does
/// not answer on the terms of that of its methods which asks least.
pub fn terms(method: &str, path: &str) -> Terms {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let rule = |route: super::route::Route| Rule {
            method: route.method.as_str().to_owned(),
            path: route.path,
            terms: Terms {
                access: route.access,
                limited: route.is_limited(),
                urgent: route.ends_credentials,
                body_bytes_max: route.body_bytes_max,
            },
        };
        routes::table().into_iter().map(rule).collect()
    });
    let method = if method == "HEAD" { "GET" } else { method };
    let here = || rules.iter().filter(|rule| fits(rule.path, path));
    // A literal path goes before a template that fits as well, as it does in the router.
    let exact = here().filter(|rule| rule.method == method).min_by_key(|rule| rule.path.matches('{').count());
    let least = || here().map(|rule| Terms { urgent: false, ..rule.terms }).min_by_key(|terms| terms.access);
    exact.map(|rule| rule.terms).or_else(least).unwrap_or(UNKNOWN)
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
            ("GET", "/metrics", ADMIN),
            ("GET", "/api/v1/traces", VIEWER),
            ("HEAD", "/api/v1/traces/1", VIEWER),
            ("GET", "/api/v1/traces/", VIEWER),
            ("GET", "/api/v1/nothing", VIEWER),
            ("GET", "/api/v1/../../health", VIEWER),
        ] {
            assert_eq!(terms(method, path).access, expected, "{method} {path}");
        }
    }

    #[test]
    fn probes_scrapes_and_administration_are_not_limited_and_ends_of_credentials_go_first() {
        for (method, path, limited, urgent) in [
            ("GET", "/health", false, false),
            ("GET", "/livez", false, false),
            ("GET", "/readyz", false, false),
            ("GET", "/metrics", false, false),
            ("GET", "/api/v1/auth/keys", false, false),
            ("POST", "/api/v1/auth/keys", false, false),
            ("DELETE", "/api/v1/auth/keys/1", false, true),
            ("GET", "/api/v1/auth/keys/1", false, false),
            ("POST", "/api/v1/tenants/1/token/reset", false, true),
            ("DELETE", "/api/v1/tenants/1", false, true),
            ("PUT", "/api/v1/tenants/1", false, false),
            ("GET", "/api/v1/tenants/current/token", true, false),
            ("GET", "/api/v1/stats", true, false),
            ("POST", "/api/v1/traces/1/actions", true, false),
            ("GET", "/api/v1/nothing", true, false),
        ] {
            let terms = terms(method, path);
            assert_eq!((terms.limited, terms.urgent), (limited, urgent), "{method} {path}");
        }
    }
}
