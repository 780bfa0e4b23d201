//! A graph that runs: its sessions, one for each thread that may ask at a time, and what goes in and comes out.

use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::{Outlet, Tensor, TensorElementType, ValueType};
use parking_lot::Mutex;

use std::borrow::Cow;
use std::path::Path;

use crate::folder::ModelError;
use crate::runtime::Runtime;
use crate::tokens::Window;

/// A loaded graph.
#[derive(Debug)]
pub(crate) struct Network {
    sessions: Vec<Mutex<Session>>,
    inputs: Vec<(String, Input, bool)>,
}

/// What an input is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Ids,
    Mask,
    Types,
}

/// What the graph says of a window.
#[derive(Debug)]
pub(crate) struct Output {
    /// Numbers, row by row.
    pub(crate) values: Vec<f32>,
    /// Numbers in a row: the classes.
    pub(crate) classes: usize,
}

impl Network {
    /// Loads `graph` for as many threads as may ask at a time.
    pub(crate) fn load(runtime: &Runtime, graph: &Path, threads: usize) -> Result<Self, ModelError> {
        let unusable = |why: String| ModelError::Unusable(format!("`{}`: {why}", graph.display()));
        let sessions = (0..threads.max(1)).map(|_| open(runtime, graph).map_err(unusable));
        let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
        let inputs = sessions.first().map(inputs).transpose().map_err(unusable)?.unwrap_or_default();
        Ok(Self { sessions: sessions.into_iter().map(Mutex::new).collect(), inputs })
    }

    /// What it says of one window.
    ///
    /// # Errors
    /// What ONNX Runtime says.
    pub(crate) fn run(&self, window: &Window) -> Result<Output, String> {
        let say = |error: ort::Error| error.to_string();
        let mut fed: Vec<(Cow<'_, str>, SessionInputValue<'_>)> = Vec::with_capacity(self.inputs.len());
        for (name, input, is_wide) in &self.inputs {
            let values = match input {
                Input::Ids => &window.ids,
                Input::Mask => &window.mask,
                Input::Types => &window.types,
            };
            let shape = [1, values.len()];
            let value: SessionInputValue<'_> = if *is_wide {
                Tensor::from_array((shape, values.clone())).map_err(say)?.into()
            } else {
                // Numbers of tokens, and ones.
                let narrow: Vec<i32> = values.iter().map(|value| i32::try_from(*value).unwrap_or(i32::MAX)).collect();
                Tensor::from_array((shape, narrow)).map_err(say)?.into()
            };
            fed.push((Cow::Borrowed(name), value));
        }
        let mut session = self.session().ok_or("no session is free")?;
        let said = session.run(fed).map_err(say)?;
        let value = said.get("logits").or_else(|| said.values().next().map(|_| &said[0])).ok_or("it has no output")?;
        let (shape, values) = value.try_extract_tensor::<f32>().map_err(say)?;
        let classes = shape.last().and_then(|classes| usize::try_from(*classes).ok()).unwrap_or_default();
        if values.is_empty() || classes == 0 || values.iter().any(|value| !value.is_finite()) {
            return Err("it says no numbers".to_owned());
        }
        Ok(Output { values: values.to_vec(), classes })
    }

    /// One that nobody uses; there are as many as threads that ask.
    fn session(&self) -> Option<parking_lot::MutexGuard<'_, Session>> {
        let free = self.sessions.iter().find_map(Mutex::try_lock);
        free.or_else(|| self.sessions.first().map(Mutex::lock))
    }
}

impl Output {
    /// The rows, one for each token or one for all.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.classes)
    }
}

fn open(runtime: &Runtime, graph: &Path) -> Result<Session, String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let builder = Session::builder(&runtime.environment).map_err(|error| say(&error))?;
    // Each thread of the pool runs its own session, so none needs threads of its own; texts differ in length, so no plan of
    // the memory is worth keeping.
    let builder = builder.with_intra_threads(1).map_err(|error| say(&error))?;
    let builder = builder.with_inter_threads(1).map_err(|error| say(&error))?;
    let builder = builder.with_intra_op_spinning(false).map_err(|error| say(&error))?;
    let builder = builder.with_memory_pattern(false).map_err(|error| say(&error))?;
    let mut builder = builder.with_optimization_level(GraphOptimizationLevel::All).map_err(|error| say(&error))?;
    builder.commit_from_file(graph).map_err(|error| error.to_string())
}

/// What the graph asks for: its name, what it stands for, and whether in 64 bits.
fn inputs(session: &Session) -> Result<Vec<(String, Input, bool)>, String> {
    let one = |outlet: &Outlet| {
        let name = outlet.name();
        let input = match name {
            "input_ids" => Input::Ids,
            "attention_mask" => Input::Mask,
            "token_type_ids" => Input::Types,
            other => {
                return Err(format!("it asks for `{other}`; input_ids, attention_mask and token_type_ids are given"));
            }
        };
        let is_wide = match outlet.dtype() {
            ValueType::Tensor { ty: TensorElementType::Int64, .. } => true,
            ValueType::Tensor { ty: TensorElementType::Int32, .. } => false,
            other => return Err(format!("`{name}` is {other:?}; numbers of 64 or 32 bits are given")),
        };
        Ok((name.to_owned(), input, is_wide))
    };
    session.inputs().iter().map(one).collect()
}
