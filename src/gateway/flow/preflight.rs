//! The question a browser asks on behalf of a page before the page's own request (the Fetch standard, "CORS-preflight request").

use bytes::Bytes;

use crate::client::own_answer::OwnAnswer;
use crate::client::session::{Next, Session};
use crate::exchange::ALLOW;
use crate::wire::RequestHead;

/// How long a browser may remember the answer, in seconds.
const REMEMBERED_S: &str = "600";

/// Whether a browser asks on behalf of a page whether it may ask.
pub(super) fn is_preflight(head: &RequestHead) -> bool {
    head.method() == "OPTIONS" && head.get("access-control-request-method").is_some()
}

/// Says yes. The request itself is judged like any other when it comes.
pub(super) async fn answer(session: &mut Session, head: &RequestHead) -> Next {
    session.begin_body(head.body);
    let behind = session.behind(head, None);
    let mut fields =
        vec![("Access-Control-Allow-Methods", ALLOW.to_owned()), ("Access-Control-Max-Age", REMEMBERED_S.to_owned())];
    if let Some(wanted) = head.get("access-control-request-headers").and_then(|names| std::str::from_utf8(names).ok()) {
        fields.push(("Access-Control-Allow-Headers", wanted.to_owned()));
    }
    if head.get("access-control-request-private-network").is_some() {
        fields.push(("Access-Control-Allow-Private-Network", "true".to_owned()));
    }
    let (content_type, body) = ("text/plain", Bytes::new());
    let answer = OwnAnswer { status: 200, fields: &fields, content_type, body, behind };
    session.answer(answer, |_| ()).await
}
