//! A trace as a conversation.

use weir_config::vocab::Finding;
use weir_storage::messages::{self, Message, MessagePart, MessagePartType};
use weir_storage::record::{SpanRecord, TraceRecord};

use super::screen::Screen;
use super::table::{outcome, seconds, tokens};

/// Before the texts of a message.
const INDENT: &str = "  ";

/// Writes a trace: what is known of it and whose it is, then each call with what was said.
pub(super) fn print(trace: &TraceRecord, tenant: &str, screen: &mut Screen) {
    // Ids stay whole: they are there to be copied.
    screen.raw(&format!("trace {}", trace.trace_id));
    let name = tenant.strip_prefix("tenant ").unwrap_or(tenant);
    let mut about = vec![seconds(trace.created_at), format!("tenant {name}"), trace.provider.clone().into_owned()];
    about.extend(trace.model.clone());
    about.extend(trace.agent_id.as_ref().map(|agent| format!("agent {agent}")));
    if let Some(first) = trace.spans.first() {
        about.extend(first.session_id.as_ref().map(|session| format!("session {session}")));
        about.extend(first.client.clone());
    }
    about.push(trace.security_score.map_or_else(|| "not analysed".to_owned(), |score| format!("score {score}")));
    screen.text("", &about.join(" · "));
    for span in &trace.spans {
        screen.raw("");
        print_span(span, screen);
    }
}

fn print_span(span: &SpanRecord, screen: &mut Screen) {
    screen.raw(&format!("span {}", span.span_id));
    let mut about =
        vec![span.operation_name.clone().into_owned(), outcome(span), format!("{:.0} ms", span.duration_ms)];
    about.push(format!("{} tokens", tokens(span.prompt_tokens, span.completion_tokens)));
    about.extend(span.estimated_cost_usd.map(|cost| format!("{cost:.6} USD")));
    about.extend(span.finish_reason.clone());
    about.extend((span.enforcement != "none").then(|| span.enforcement.clone().into_owned()));
    screen.text("", &about.join(" · "));
    if let Some(error) = &span.error_type {
        screen.text("", &format!("error {error}: {}", span.error_message.as_deref().unwrap_or("no message")));
    }
    let said = messages::of(span);
    for message in &said {
        print_message(message, &span.security_findings, screen);
    }
    if said.is_empty() {
        print_texts(span, screen);
    }
    let placed = |finding: &&Finding| {
        said.iter().flat_map(|message| &message.parts).any(|part| part.findings.contains(&finding.id))
    };
    let elsewhere: Vec<&Finding> = span.security_findings.iter().filter(|finding| !placed(finding)).collect();
    if !elsewhere.is_empty() {
        screen.raw("");
        screen.line("findings");
    }
    elsewhere.into_iter().for_each(|finding| print_finding(finding, screen));
}

/// What is known of a record of an earlier version.
fn print_texts(span: &SpanRecord, screen: &mut Screen) {
    for (name, text) in [("request", &span.prompt), ("answer", &span.response)] {
        if let Some(text) = text {
            screen.raw("");
            screen.line(name);
            screen.text(INDENT, text);
        }
    }
    if span.tags.contains_key("texts_removed") {
        screen.raw("");
        screen.line("the texts were removed by `storage.text_retention_days`");
    }
}

fn print_message(message: &Message<'_>, findings: &[Finding], screen: &mut Screen) {
    screen.raw("");
    screen.line(&message.role);
    for part in &message.parts {
        print_part(part, screen);
        for finding in findings.iter().filter(|finding| part.findings.contains(&finding.id)) {
            print_finding(finding, screen);
        }
    }
}

fn print_part(part: &MessagePart<'_>, screen: &mut Screen) {
    let about = |what: &str| {
        let names = [part.name, part.call_id].into_iter().flatten().map(|name| format!(" {name}"));
        format!("{INDENT}[{what}{}]", names.collect::<String>())
    };
    match part.part_type {
        MessagePartType::Text => {}
        MessagePartType::Reasoning => screen.line(&about("reasoning")),
        MessagePartType::Refusal => screen.line(&about("refusal")),
        MessagePartType::ToolCall => screen.line(&about("calls")),
        MessagePartType::ToolResult => screen.line(&about("result")),
        MessagePartType::ToolDefinition => screen.line(&about("tool")),
        MessagePartType::Credential => screen.line(&about("credential, not kept")),
        MessagePartType::Image | MessagePartType::File => {
            let Some(file) = &part.file else { return screen.line(&about("file")) };
            let hash = file.sha256.get(..12).unwrap_or(&file.sha256);
            screen.line(&about(&format!("{}, {} bytes, sha256 {hash}", file.media_type, file.bytes)));
        }
    }
    if let Some(value) = part.value.as_ref().filter(|_| part.part_type == MessagePartType::ToolCall) {
        // Names and numbers are part of what is asked for.
        screen.text(&INDENT.repeat(2), &format!("{value:#}"));
    } else if let Some(text) = part.text {
        let indent = if part.part_type == MessagePartType::Text { INDENT.to_owned() } else { INDENT.repeat(2) };
        screen.text(&indent, text);
    }
}

fn print_finding(finding: &Finding, screen: &mut Screen) {
    let (severity, kind) = (finding.severity, &finding.finding_type);
    screen.text(INDENT, &format!("! {severity} {kind} ({}): {}", finding.detector, finding.evidence));
}
