//! Every string value of a JSON document with its place, in the order of the document.
//!
//! Invariant: what stands under a key that is given twice is seen twice.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Shows the string values of a document: place and text. With `field`, those under this key of a record, which is an object
/// at the top or in an array there; false when no record has it.
///
/// # Errors
/// When it is no JSON; what stands before the fault was shown.
pub(super) fn each(
    json: &[u8],
    field: Option<&str>,
    see: &mut dyn FnMut(&str, &str),
) -> Result<bool, serde_json::Error> {
    let mut place = String::from("$");
    let mut met = field.is_none();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let walk = Walk { place: &mut place, field, inside: field.is_none(), depth: 0, met: &mut met, see };
    walk.deserialize(&mut reader)?;
    reader.end()?;
    Ok(met)
}

struct Walk<'a> {
    place: &'a mut String,
    field: Option<&'a str>,
    /// Whether it is below the field that is asked for.
    inside: bool,
    depth: usize,
    met: &'a mut bool,
    see: &'a mut dyn FnMut(&str, &str),
}

impl Walk<'_> {
    /// One level down.
    fn below(&mut self, inside: bool, depth: usize) -> Walk<'_> {
        Walk { place: self.place, field: self.field, inside, depth, met: self.met, see: self.see }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.inside {
            (self.see)(self.place, text);
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let kept = self.place.len();
        for at in 0.. {
            self.place.push_str(&format!("[{at}]"));
            let (inside, depth) = (self.inside, self.depth);
            let more = items.next_element_seed(self.below(inside, depth))?;
            self.place.truncate(kept);
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let kept = self.place.len();
        while let Some(key) = entries.next_key::<String>()? {
            let asked = self.depth == 0 && self.field == Some(&*key);
            *self.met |= asked;
            put_key(self.place, &key);
            let (inside, depth) = (self.inside || asked, self.depth + 1);
            entries.next_value_seed(self.below(inside, depth))?;
            self.place.truncate(kept);
        }
        Ok(())
    }
}

/// `.name`, or `["any other name"]`.
fn put_key(place: &mut String, key: &str) {
    let is_name = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    place.push_str(&match is_name {
        true => format!(".{key}"),
        false => format!("[{}]", serde_json::Value::from(key)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(json: &str, field: Option<&str>) -> (Vec<String>, Option<bool>) {
        let mut seen = Vec::new();
        let met = each(json.as_bytes(), field, &mut |place, text| seen.push(format!("{place}={text}"))).ok();
        (seen, met)
    }

    #[test]
    fn every_string_is_seen_with_its_place() {
        let json = r#"{"a": "1", "a": ["2", 3, null, {"b c": "4"}], "d": {"e": true, "a": "5"}}"#;
        let all = ["$.a=1", "$.a[0]=2", r#"$.a[3]["b c"]=4"#, "$.d.a=5"];
        assert_eq!(strings(json, None), (all.map(str::to_owned).to_vec(), Some(true)));
        assert_eq!(strings(json, Some("d")), (vec!["$.d.a=5".to_owned()], Some(true)));
        assert_eq!(strings(json, Some("x")), (vec![], Some(false)));
        assert_eq!(strings(r#"[{"x": "1"}, {"y": "2"}]"#, Some("y")), (vec!["$[1].y=2".to_owned()], Some(true)));
        assert_eq!(strings(r#"{"a": "1", oops"#, None), (vec!["$.a=1".to_owned()], None));
    }
}
