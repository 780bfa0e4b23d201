//! Credentials that were found in a call: whatever else of its record repeats one loses it, too, also where nothing beside it says
//! what it is.

use memchr::memmem;

/// Different credentials that are remembered of a call.
const MAX: usize = 64;
/// A shorter credential could be any word.
const BYTES_MIN: usize = 6;
/// Shortest beginning of a credential that is taken from the end of a text that was cut.
const BEGINNING_MIN: usize = 4;

/// What was found, and what is kept instead.
#[derive(Debug, Default)]
pub struct Credentials {
    list: Vec<(String, String)>,
}

impl Credentials {
    /// Remembers the credential in these words, which were found as one of this kind.
    pub fn add(&mut self, kind: &str, words: &str) {
        let value = value(kind, words);
        let is_new = |(known, _): &(String, String)| known != value;
        if value.len() >= BYTES_MIN && self.list.len() < MAX && self.list.iter().all(is_new) {
            self.list.push((value.to_owned(), format!("[SECRET:{}]", kind.to_ascii_uppercase())));
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Where they stand in a text, each with what is kept instead. Places may overlap.
    pub fn places<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (std::ops::Range<usize>, &'a str)> {
        self.list.iter().flat_map(move |(value, tag)| {
            let places = memmem::find_iter(text.as_bytes(), value.as_bytes());
            places.map(move |at| (at..at + value.len(), tag.as_str()))
        })
    }

    /// Takes them out of a text, and the beginning of one from the end of a text that was cut.
    pub fn mask(&self, text: &mut String) {
        for (value, tag) in &self.list {
            if text.contains(value) {
                *text = text.replace(value, tag);
            }
            let Some(whole) = text.strip_suffix('…') else { continue };
            let longest = (BEGINNING_MIN..value.len()).rev();
            let mut beginnings = longest.filter_map(|length| value.get(..length));
            if let Some(beginning) = beginnings.find(|beginning| whole.ends_with(beginning)) {
                *text = format!("{}{tag}…", whole.get(..whole.len() - beginning.len()).unwrap_or_default());
            }
        }
    }
}

/// The credential itself, without the words that say what it is.
fn value<'a>(kind: &str, words: &'a str) -> &'a str {
    let after = |words: &'a str, mark: char| words.split_once(mark).map_or(words, |(_, value)| value);
    match kind {
        "bearer_token" => words.rsplit(' ').next().unwrap_or(words),
        "basic_auth_url" | "db_url_password" => {
            let before = words.rsplit_once('@').map_or(words, |(before, _)| before);
            before.split_once("://").map_or(before, |(_, user)| after(user, ':'))
        }
        "azure_storage_key" => words.rsplit_once("AccountKey=").map_or(words, |(_, value)| value),
        "password_assignment" | "api_key" => {
            let at = words.find(['=', ':']).map_or(0, |at| at + 1);
            let value = words.get(at..).unwrap_or_default().trim_start_matches(['=', '>']).trim();
            value.trim_end_matches([',', ';']).trim_matches(['"', '\'', '`'])
        }
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(kind: &str, words: &str, text: &str) -> String {
        let mut credentials = Credentials::default();
        credentials.add(kind, words);
        let mut text = text.to_owned();
        credentials.mask(&mut text);
        text
    }

    #[test]
    fn the_value_is_known_again_without_its_label() {
        for (kind, words, value) in [
            ("password_assignment", "PGPASSWORD = \"Qwerty6412!\"", "Qwerty6412!"),
            ("password_assignment", "admin_pwd => 'Hunter3942#',", "Hunter3942#"),
            ("password_assignment", "\"password\": \"Hunter3942#\"", "Hunter3942#"),
            ("api_key", "api_key=b7Gq2ZkP9wXr4TnV8yLm3HdS6cJf==", "b7Gq2ZkP9wXr4TnV8yLm3HdS6cJf=="),
            ("bearer_token", "Authorization: Bearer PDGrI8I.j.9pwhnae5z9kA5uNQ", "PDGrI8I.j.9pwhnae5z9kA5uNQ"),
            ("basic_auth_url", "https://deploy:eXw10oN8nzBZh2Ucqo@git.example", "eXw10oN8nzBZh2Ucqo"),
            ("db_url_password", "amqp://root:xDAyJ6asBojmK@db2.internal", "xDAyJ6asBojmK"),
            ("github_pat", "ghp_abcdef", "ghp_abcdef"),
        ] {
            let tag = format!("[SECRET:{}]", kind.to_ascii_uppercase());
            assert_eq!(
                masked(kind, words, &format!("no login for {value}.")),
                format!("no login for {tag}."),
                "{kind}"
            );
        }
    }

    #[test]
    fn of_a_text_that_was_cut_the_beginning_of_one_goes_and_short_values_stay() {
        assert_eq!(masked("npm_token", "npm_8Tx729SOK6", "curl npm_8Tx…"), "curl [SECRET:NPM_TOKEN]…");
        assert_eq!(masked("npm_token", "npm_8Tx729SOK6", "curl npm_8Tx"), "curl npm_8Tx");
        assert_eq!(masked("npm_token", "npm_8Tx729SOK6", "what came…"), "what came…");
        assert_eq!(masked("password_assignment", "pwd=a1b2c", "a1b2c"), "a1b2c");
    }
}
