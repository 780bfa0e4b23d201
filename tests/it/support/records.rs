//! What the gateway has recorded, read the way its users read it: through the query API.

use serde_json::Value;

use super::{Answer, Gateway, call, eventually};

impl Gateway {
    /// The trace of an answer, as soon as it can be read.
    pub(crate) fn trace_of(&self, answer: &Answer) -> Value {
        self.trace(&answer.trace_id())
    }

    /// The trace with this id, as soon as it can be read.
    pub(crate) fn trace(&self, trace_id: &str) -> Value {
        self.trace_for(trace_id, "")
    }

    /// The same with further request fields, for instance a credential that names a tenant.
    pub(crate) fn trace_for(&self, trace_id: &str, fields: &str) -> Value {
        let request = format!("GET /api/v1/traces/{trace_id} HTTP/1.1\r\nHost: weir\r\n{fields}\r\n");
        eventually(&format!("trace {trace_id} can be read"), || {
            let answer = call(self.addr, &request);
            // A long trace may take longer than an answer may, on a machine that is busy.
            assert!(matches!(answer.status, 200 | 404 | 503), "{}", answer.text());
            (answer.status == 200).then(|| answer.json())
        })
    }

    /// The only span of an answer's trace.
    pub(crate) fn span_of(&self, answer: &Answer) -> Value {
        only_span(self.trace_of(answer))
    }

    /// The newest span, once `count` spans have been recorded.
    pub(crate) fn newest_span_of(&self, count: u64) -> Value {
        eventually(&format!("{count} spans are recorded"), || {
            let page = self.json("/api/v1/spans?limit=1");
            (page["total"].as_u64() >= Some(count)).then(|| page["data"][0].clone())
        })
    }
}

fn only_span(trace: Value) -> Value {
    assert_eq!(trace["span_count"], 1, "{trace}");
    trace["spans"][0].clone()
}
