//! Prose to send: sentences a support desk or an engineering team would write, put together at random.
//!
//! Benign and plain ASCII on purpose: it should cost the analysis what ordinary text costs, and find nothing.

use super::arrivals::Random;

/// Sentences; `@` stands for a thing, `%` for a quality.
const PATTERNS: [&str; 28] = [
    "We moved the @ to the new region last week and the @ has been % since then.",
    "Could you explain why the @ reports a % result when the @ is idle?",
    "The customer says their @ arrived late, but the @ shows it left on time.",
    "Please compare the @ with the @ and tell me which one is more %.",
    "I need a short summary of the @ for people who have never seen the @.",
    "After the upgrade the @ started to look %, and nobody touched the @.",
    "Our team would like to replace the @ with something less %.",
    "Is it normal that the @ takes longer than the @ on Monday mornings?",
    "The draft mentions the @ twice, yet the @ is the part readers ask about.",
    "Write a friendly note to the owner of the @ about the % @.",
    "What would you check first if the @ and the @ disagree?",
    "In the meeting we agreed that the @ should stay % until the @ is ready.",
    "List three risks of running the @ without the @.",
    "The old manual calls the @ %, which confuses everybody who uses the @.",
    "Suppose the @ fails at night: how do we notice before the @ does?",
    "She asked whether the @ could be made % without changing the @.",
    "My notes say the @ was tested with a % sample, not with the @.",
    "Turn the following remarks about the @ into a table with one row per @.",
    "There is a % difference between the @ we planned and the @ we have.",
    "Translate the paragraph on the @ so that it sounds % in German.",
    "The budget for the @ is fine, but the @ needs another look.",
    "Nobody remembers who added the @, only that it made the @ %.",
    "Give me an example where the @ is helpful and one where the @ is better.",
    "Before we ship the @, the @ has to be less %.",
    "The graph of the @ is flat except for one % hour in the afternoon.",
    "He prefers the @ because it is %, although the @ costs less.",
    "Can the @ be scheduled after the @ has finished?",
    "Thanks, that was %; now do the same for the @ and leave the @ alone.",
];

const THINGS: [&str; 40] = [
    "billing report",
    "search index",
    "delivery schedule",
    "onboarding guide",
    "nightly import",
    "release checklist",
    "mobile client",
    "warehouse scanner",
    "training plan",
    "quarterly forecast",
    "message queue",
    "product catalogue",
    "support rota",
    "backup job",
    "login page",
    "price list",
    "event calendar",
    "sensor feed",
    "test suite",
    "migration script",
    "travel request",
    "design review",
    "energy meter",
    "course outline",
    "rental agreement",
    "photo archive",
    "recipe collection",
    "shift handover",
    "survey form",
    "network map",
    "garden project",
    "museum tour",
    "invoice template",
    "road survey",
    "parts inventory",
    "reading list",
    "bus timetable",
    "lab notebook",
    "water pump",
    "weather model",
];

const QUALITIES: [&str; 24] = [
    "slow",
    "reliable",
    "surprising",
    "expensive",
    "readable",
    "quiet",
    "uneven",
    "complete",
    "fragile",
    "simple",
    "outdated",
    "precise",
    "noisy",
    "useful",
    "vague",
    "stable",
    "formal",
    "cheap",
    "crowded",
    "patient",
    "careful",
    "short",
    "strange",
    "gentle",
];

/// The name of something.
pub(super) fn thing(random: &mut Random) -> &'static str {
    THINGS[random.below(THINGS.len())]
}

/// Appends sentences until `bytes` more have been added, cutting the last one.
pub(super) fn append(out: &mut String, bytes: usize, random: &mut Random) {
    let end = out.len() + bytes;
    while out.len() < end {
        for letter in PATTERNS[random.below(PATTERNS.len())].chars() {
            match letter {
                '@' => out.push_str(THINGS[random.below(THINGS.len())]),
                '%' => out.push_str(QUALITIES[random.below(QUALITIES.len())]),
                other => out.push(other),
            }
        }
        out.push(' ');
    }
    // ASCII throughout, so every length is a boundary.
    out.truncate(end);
}
