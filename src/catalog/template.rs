//! URI templates: which URIs a template may have made.
//!
//! Matching decides where a read goes, so it takes what an expression could have become in any of
//! RFC 6570's forms, and a little more: servers match in their own ways, and have the last word. Time
//! is linear in the URI for each of a template's bounded number of expressions.
//!
//! spec: RFC 6570, sections 2 and 3

/// Most expressions in one template: each costs a pass over every URI that it is compared with.
const EXPRESSIONS: usize = 8;

/// Most bytes that are gone over for one URI, whatever templates there are: less than a millisecond. What
/// templates that servers really have need lies far below.
const STEPS: usize = 1 << 17;

/// Why a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateProblem {
    /// Braces that do not fit, or an expression that is none.
    #[error("its `uriTemplate` is no URI template")]
    Malformed,
    /// Over `EXPRESSIONS`.
    #[error("its `uriTemplate` has more than {EXPRESSIONS} expressions")]
    Many,
}

/// A template, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

/// What may still be spent on one URI.
#[derive(Debug)]
pub struct Steps(usize);

impl Default for Steps {
    /// What there is for one URI.
    fn default() -> Self {
        Self(STEPS)
    }
}

impl Steps {
    fn take(&mut self, steps: usize) -> Option<()> {
        self.0 = self.0.checked_sub(steps)?;
        Some(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Expression(Expression),
}

/// What an expression may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expression {
    /// The character that its operator begins with; with one, it may also become nothing.
    lead: Option<u8>,
    /// The characters that it cannot become.
    stops: &'static [u8],
}

impl Pattern {
    /// Reads a template.
    pub fn read(template: &str) -> Result<Self, TemplateProblem> {
        let (mut parts, mut rest, mut expressions) = (Vec::new(), template, 0);
        while let Some(brace) = rest.find(['{', '}']) {
            let (literal, open) = rest.split_at(brace);
            let (inside, after) = open
                .strip_prefix('{')
                .and_then(|inside| inside.split_once('}'))
                .ok_or(TemplateProblem::Malformed)?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(Part::Expression(Expression::read(inside).ok_or(TemplateProblem::Malformed)?));
            expressions += 1;
            if expressions > EXPRESSIONS {
                return Err(TemplateProblem::Many);
            }
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Whether the template may have become `uri`; `None` if that took too many steps.
    pub fn matches(&self, uri: &str, steps: &mut Steps) -> Option<bool> {
        steps.take(1)?;
        let begins = |part: &Part| !matches!(part, Part::Literal(text) if !uri.starts_with(&**text));
        let ends = |part: &Part| !matches!(part, Part::Literal(text) if !uri.ends_with(&**text));
        if !self.0.first().is_none_or(begins) || !self.0.last().is_none_or(ends) {
            return Some(false);
        }
        let uri = uri.as_bytes();
        // Where in the URI what was matched so far may end.
        let mut ends = vec![false; uri.len() + 1];
        ends[0] = true;
        for part in &self.0 {
            steps.take(part.len() + ends.len())?;
            ends = match part {
                Part::Literal(literal) => after_literal(uri, &ends, literal.as_bytes()),
                Part::Expression(expression) => expression.after(uri, &ends),
            };
            if !ends.contains(&true) {
                return Some(false);
            }
        }
        Some(ends[uri.len()])
    }

    /// The template with other literals in the place of its own.
    pub fn map(&self, literal: impl Fn(&str) -> String) -> Self {
        let part = |part: &Part| match part {
            Part::Literal(text) => Part::Literal(literal(text)),
            Part::Expression(expression) => Part::Expression(*expression),
        };
        Self(self.0.iter().map(part).collect())
    }

    /// How specific the template is: of two that match, the greater one is meant.
    pub fn specificity(&self) -> (usize, std::cmp::Reverse<usize>, usize) {
        let stops = |part: &Part| match part {
            Part::Literal(_) => 0,
            Part::Expression(expression) => expression.stops.len(),
        };
        let expressions = self.0.iter().filter(|part| matches!(part, Part::Expression(_))).count();
        (self.0.iter().map(Part::len).sum(), std::cmp::Reverse(expressions), self.0.iter().map(stops).sum())
    }

    /// The template with something plain in place of each expression.
    pub fn example(&self) -> String {
        let text = |part: &Part| match part {
            Part::Literal(literal) => literal.clone(),
            Part::Expression(_) => "x".to_owned(),
        };
        self.0.iter().map(text).collect()
    }

    /// Whether it begins with text that has a scheme in it: one that does not takes every URI.
    pub fn has_scheme(&self) -> bool {
        matches!(self.0.first(), Some(Part::Literal(literal)) if literal.contains(':'))
    }
}

impl Part {
    /// How much of a URI it says.
    fn len(&self) -> usize {
        match self {
            Self::Literal(literal) => literal.len(),
            Self::Expression(_) => 0,
        }
    }
}

impl Expression {
    /// Reads what is between braces: an operator, and names of variables with their modifiers.
    fn read(inside: &str) -> Option<Self> {
        let (lead, stops): (_, &[u8]) = match inside.as_bytes().first()? {
            b'+' => (None, b""),
            b'#' => (Some(b'#'), b""),
            b'.' => (Some(b'.'), b"/?#"),
            b'/' => (Some(b'/'), b"?#"),
            b';' => (Some(b';'), b"/?#"),
            b'?' => (Some(b'?'), b"#"),
            b'&' => (Some(b'&'), b"#"),
            // Not reserved for more, and exploded by servers over several segments.
            _ if inside.ends_with('*') => (None, b"?#"),
            _ => (None, b"/?#"),
        };
        let names = inside.strip_prefix(['+', '#', '.', '/', ';', '?', '&']).unwrap_or(inside);
        names.split(',').all(is_variable).then_some(Self { lead, stops })
    }

    /// Where it may end, if it begins at one of `starts`.
    fn after(self, uri: &[u8], starts: &[bool]) -> Vec<bool> {
        // With a lead it may be nothing.
        let mut ends = if self.lead.is_some() { starts.to_vec() } else { vec![false; starts.len()] };
        let mut inside = false;
        for (at, byte) in uri.iter().enumerate() {
            let begins = starts[at] && self.lead.is_none_or(|lead| lead == *byte);
            inside = (inside || begins) && !self.stops.contains(byte);
            ends[at + 1] |= inside;
        }
        ends
    }
}

/// Where `literal` ends that begins at one of `starts`.
fn after_literal(uri: &[u8], starts: &[bool], literal: &[u8]) -> Vec<bool> {
    let mut ends = vec![false; starts.len()];
    let runs = common_prefixes(&[literal, uri].concat());
    for (at, _) in starts.iter().enumerate().filter(|(_, starts)| **starts) {
        let run = runs.get(literal.len() + at).copied().unwrap_or(0);
        if run >= literal.len()
            && let Some(end) = ends.get_mut(at + literal.len())
        {
            *end = true;
        }
    }
    ends
}

/// For each place of `text`, how long what begins there is the same as the beginning of `text`: the Z
/// function, in linear time.
fn common_prefixes(text: &[u8]) -> Vec<usize> {
    let mut runs = vec![0; text.len()];
    // The run that reaches furthest to the right.
    let (mut left, mut right) = (0, 0);
    for at in 1..text.len() {
        let mut run = if at < right { runs[at - left].min(right - at) } else { 0 };
        while at + run < text.len() && text[run] == text[at + run] {
            run += 1;
        }
        if at + run > right {
            (left, right) = (at, at + run);
        }
        runs[at] = run;
    }
    runs
}

/// Whether `text` is a variable's name, with or without a modifier.
fn is_variable(text: &str) -> bool {
    let name = match text.split_once(':') {
        Some((name, length)) if (1..=4).contains(&length.len()) && length.parse::<u16>().is_ok() => name,
        Some(_) => return false,
        None => text.strip_suffix('*').unwrap_or(text),
    };
    // Hyphens are not RFC 6570's; servers use them all the same.
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.%-".contains(&byte);
    !name.is_empty() && name.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::Pattern;
    use super::STEPS;
    use super::Steps;
    use super::TemplateProblem;

    #[test]
    fn templates_match_what_they_may_have_become() {
        for (template, uri, expected) in [
            ("demo://note/{id}", "demo://note/1", true),
            ("demo://note/{id}", "demo://note/a%2Fb", true),
            ("demo://note/{id}", "demo://note/caf\u{e9}", true),
            ("demo://note/{id}", "demo://note/", false),
            ("demo://note/{id}", "demo://note/1/2", false),
            ("demo://note/{id}", "demo://note/1?x", false),
            ("demo://note/{id}", "demo://notes/1", false),
            ("demo://note/{id}", "demo://note", false),
            ("demo://note", "demo://note", true),
            ("demo://note", "demo://note/1", false),
            ("a://{x}/b/{y}", "a://1/b/2", true),
            ("a://{x}/b/{y}", "a://1/c/2", false),
            ("a://{x}b{y}", "a://bbb", true),
            ("a://{x}b{y}", "a://bb", false),
            ("a://{x}{y}", "a://12", true),
            ("a://{x}{y}", "a://1", false),
            ("a://{x,y}", "a://1,2", true),
            ("file:///{path*}", "file:///a/b/c", true),
            ("file:///{id:3}", "file:///abc", true),
            // Level 2.
            ("file:///{+path}", "file:///a/b/c?d#e", true),
            ("file:///{+path}", "file:///", false),
            ("a://{+x}-{y}", "a://p-q/r-s", true),
            ("a://{+x}-{y}", "a://p-q/r", false),
            ("a://b{#part}", "a://b#c/d", true),
            ("a://b{#part}", "a://b", true),
            ("a://b{#part}", "a://bc", false),
            // Level 3.
            ("a://b{.ext}", "a://b.txt", true),
            ("a://b{.ext}", "a://b", true),
            ("a://b{.ext}", "a://b.t/x", false),
            ("a://b{/x,y}", "a://b/1/2", true),
            ("a://b{/x,y}", "a://b", true),
            ("a://b{/x}/c", "a://b/1/c", true),
            ("a://b{;x,y}", "a://b;x=1;y=2", true),
            ("a://b{?q,n}", "a://b?q=1/2&n=3", true),
            ("a://b{?q,n}", "a://b", true),
            ("a://b{?q,n}", "a://b&q", false),
            ("a://b{?q}", "a://b?q#f", false),
            ("a://b?x=1{&q}", "a://b?x=1&q=2", true),
            ("a://b?x=1{&q}", "a://b?x=1", true),
            ("a://b{?q}{#f}", "a://b?q=1#f", true),
        ] {
            let pattern = Pattern::read(template).expect(template);
            assert_eq!(pattern.matches(uri, &mut Steps::default()), Some(expected), "{template} {uri}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in [
            "a://{",
            "a://}",
            "a://{}",
            "a://{x",
            "a://x}",
            "a://{{x}}",
            "a://{x y}",
            "a://{x:}",
            "a://{x:0x}",
        ] {
            assert_eq!(Pattern::read(text), Err(TemplateProblem::Malformed), "{text}");
        }
        for text in ["a://{=x}", "a://{|x}", "a://{+}", "a://{x,}", "a://{x**}", "a://{$x}", "a://{x:12345}"]
        {
            assert_eq!(Pattern::read(text), Err(TemplateProblem::Malformed), "{text}");
        }
        assert!(Pattern::read(&format!("a://{}", "{x}/".repeat(8))).is_ok());
        assert_eq!(Pattern::read(&format!("a://{}", "{x}/".repeat(9))), Err(TemplateProblem::Many));
    }

    #[test]
    fn of_two_that_match_the_more_specific_is_greater() {
        let of = |template: &str| Pattern::read(template).unwrap().specificity();
        assert!(of("a://note/{id}") > of("a://{+rest}"));
        assert!(of("a://note/{id}") > of("a://note/{+id}"));
        assert!(of("a://{x}") > of("a://{x}{y}"));
        assert!(of("a://note/{id}/raw") > of("a://note/{id}/{part}"));
    }

    #[test]
    fn the_worst_templates_end_soon() {
        let template = format!("a:{}", format!("{}{{+x}}", "a".repeat(200)).repeat(8));
        let uri = format!("a:{}", "a".repeat(2046));
        let pattern = Pattern::read(&template).unwrap();
        let mut steps = Steps::default();
        let matched = (0..200).take_while(|_| pattern.matches(&uri, &mut steps) == Some(true)).count();
        // Each: two passes for an expression and the text before it, and the literals.
        assert_eq!(matched, STEPS / (1 + 16 * 2049 + 1602), "{steps:?}");
        assert_eq!(pattern.matches(&uri, &mut steps), None);
        // What does not begin or end so costs one step.
        let mut steps = Steps::default();
        for uri in ["b:a", "a:", &uri[..1000]] {
            let tail = Pattern::read("a:{+x}/tail").unwrap();
            assert_eq!(tail.matches(uri, &mut steps), Some(false));
        }
        assert_eq!(steps.0, STEPS - 3);
    }
}
