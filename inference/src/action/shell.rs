//! A command line as a shell would take it apart: pipelines of simple commands, words without their quotes.
//!
//! Not a shell: nothing is expanded, and what is not understood is kept as a word. Invariant: every byte is looked at once;
//! texts of nested commands (`$(...)`, backticks, `<(...)`) are handed out beside the words.

/// One command of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Simple {
    /// Words, quotes removed.
    pub(super) words: Vec<String>,
    /// Files that `>` and `>>` write to.
    pub(super) writes_to: Vec<String>,
    /// Files that `<` reads from.
    pub(super) reads_from: Vec<String>,
    /// Its output goes into the next command of the list.
    pub(super) piped: bool,
}

/// A command line taken apart.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) commands: Vec<Simple>,
    /// Commands inside this one.
    pub(super) nested: Vec<String>,
}

/// Where the next word goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Word,
    WriteTo,
    ReadFrom,
}

struct Splitter<'a> {
    chars: std::iter::Peekable<std::str::CharIndices<'a>>,
    text: &'a str,
    line: Line,
    current: Simple,
    word: String,
    /// A word has begun, be it an empty one in quotes.
    begun: bool,
    target: Target,
    /// The line that ends the text after this one (`<<`).
    here_until: Option<String>,
}

/// Takes `text` apart.
pub(super) fn split(text: &str) -> Line {
    let mut splitter = Splitter {
        chars: text.char_indices().peekable(),
        text,
        line: Line::default(),
        current: Simple::default(),
        word: String::new(),
        begun: false,
        target: Target::Word,
        here_until: None,
    };
    splitter.run();
    splitter.line
}

impl Splitter<'_> {
    fn run(&mut self) {
        while let Some((at, c)) = self.chars.next() {
            match c {
                '\\' => self.escaped(),
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '`' => self.backticks(),
                '$' if self.next_is('(') => {
                    self.chars.next();
                    self.parenthesised(at + 2);
                }
                '#' if !self.begun => while self.chars.next_if(|(_, c)| *c != '\n').is_some() {},
                '<' | '>' => self.redirection(c, at),
                '|' => self.operator('|'),
                '&' if self.next_is('>') => {}
                '&' => self.operator('&'),
                '\n' => self.end_line(),
                ';' | '(' | ')' => self.end_command(false),
                '{' | '}' if !self.begun && self.chars.peek().is_none_or(|(_, c)| c.is_whitespace() || *c == ';') => {
                    self.end_command(false);
                }
                c if c.is_whitespace() => self.end_word(),
                c => {
                    self.begun = true;
                    self.word.push(c);
                }
            }
        }
        self.end_command(false);
    }

    fn next_is(&mut self, c: char) -> bool {
        self.chars.peek().is_some_and(|(_, next)| *next == c)
    }

    fn escaped(&mut self) {
        match self.chars.next() {
            Some((_, '\n')) | None => {}
            Some((_, c)) => {
                self.begun = true;
                self.word.push(c);
            }
        }
    }

    fn single_quoted(&mut self) {
        self.begun = true;
        for (_, c) in self.chars.by_ref().take_while(|(_, c)| *c != '\'') {
            self.word.push(c);
        }
    }

    fn double_quoted(&mut self) {
        self.begun = true;
        while let Some((at, c)) = self.chars.next() {
            match c {
                '"' => break,
                '\\' => {
                    let kept = self.chars.next().map_or('\\', |(_, c)| c);
                    self.word.push(kept);
                }
                '`' => self.backticks(),
                '$' if self.next_is('(') => {
                    self.chars.next();
                    self.parenthesised(at + 2);
                }
                c => self.word.push(c),
            }
        }
    }

    fn backticks(&mut self) {
        self.begun = true;
        let inner: String = self.chars.by_ref().take_while(|(_, c)| *c != '`').map(|(_, c)| c).collect();
        self.line.nested.push(inner);
    }

    /// What stands between here and the bracket that closes this one; kept as text of the word as well, so that what
    /// runs the result can be told.
    fn parenthesised(&mut self, start: usize) {
        self.begun = true;
        let mut depth = 1u32;
        let mut end = self.text.len();
        for (at, c) in self.chars.by_ref() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = at;
                break;
            }
        }
        let inner = self.text.get(start..end).unwrap_or_default();
        self.word.push_str("$(");
        self.word.push_str(inner);
        self.word.push(')');
        self.line.nested.push(inner.to_owned());
    }

    fn redirection(&mut self, c: char, at: usize) {
        if self.next_is('(') {
            self.chars.next();
            self.parenthesised(at + 2);
            return;
        }
        // A number before the sign is a descriptor, no word.
        if self.word.chars().all(|c| c.is_ascii_digit()) {
            self.word.clear();
            self.begun = false;
        }
        self.end_word();
        if c == '<' && self.text.get(at..).is_some_and(|rest| rest.starts_with("<<") && !rest.starts_with("<<<")) {
            self.here_document();
            return;
        }
        while self.chars.next_if(|(_, next)| matches!(next, '>' | '<' | '&' | '|')).is_some() {}
        self.target = if c == '>' { Target::WriteTo } else { Target::ReadFrom };
    }

    /// `<<WORD`: the lines after this one up to `WORD` are a text, not commands.
    fn here_document(&mut self) {
        while self.chars.next_if(|(_, c)| matches!(c, '<' | '-' | ' ' | '\'' | '"')).is_some() {}
        let mut until = String::new();
        while let Some((_, c)) = self.chars.next_if(|(_, c)| c.is_alphanumeric() || *c == '_') {
            until.push(c);
        }
        self.chars.next_if(|(_, c)| matches!(c, '\'' | '"'));
        self.here_until = (!until.is_empty()).then_some(until);
    }

    fn end_line(&mut self) {
        let runs = self.current.words.first().is_some_and(|word| is_shell(word));
        self.end_command(false);
        let Some(until) = self.here_until.take() else { return };
        let mut body = String::new();
        loop {
            let line: String = self.chars.by_ref().take_while(|(_, c)| *c != '\n').map(|(_, c)| c).collect();
            if line.trim() == until || self.chars.peek().is_none() {
                break;
            }
            body.push_str(&line);
            body.push('\n');
        }
        if runs {
            self.line.nested.push(body);
        }
    }

    /// `|`, `||`, `&`, `&&`; `|&` pipes, too.
    fn operator(&mut self, c: char) {
        let doubled = self.chars.next_if(|(_, next)| *next == c).is_some();
        if c == '|' && !doubled {
            self.chars.next_if(|(_, next)| *next == '&');
        }
        self.end_command(c == '|' && !doubled);
    }

    fn end_word(&mut self) {
        if !std::mem::take(&mut self.begun) {
            return;
        }
        let word = std::mem::take(&mut self.word);
        match std::mem::replace(&mut self.target, Target::Word) {
            Target::Word => self.current.words.push(word),
            Target::WriteTo => self.current.writes_to.push(word),
            Target::ReadFrom => self.current.reads_from.push(word),
        }
    }

    fn end_command(&mut self, piped: bool) {
        self.end_word();
        self.target = Target::Word;
        let mut command = std::mem::take(&mut self.current);
        command.piped = piped;
        if command != Simple::default() {
            self.line.commands.push(command);
        }
    }
}

/// Whether a program runs the commands it is given.
pub(super) fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    matches!(name, "sh" | "bash" | "zsh" | "dash" | "ksh" | "ash" | "fish")
}
