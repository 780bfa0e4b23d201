//! The graph of the second stage, run by rten: a library in Rust that needs none on the machine.
//!
//! Invariants: runs happen on one thread of its own, which gives way to others, so that they take one core at most whoever asks; a window
//! is run alone, for what it is quantised by would else depend on its neighbours, and batches save no time.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, op_registry};
use rten_tensor::{AsView as _, NdTensor};
use rustix::time::{ClockId, clock_gettime};

/// By how much its thread stands behind others.
const NICENESS: i32 = 5;

/// A loaded graph.
pub(crate) struct Transformer {
    model: Model,
    pool: Arc<ThreadPool>,
    ids: NodeId,
    mask: NodeId,
    logits: NodeId,
}

/// What is shown of each window: two logits, of what somebody asks and of data.
pub(crate) type Logits = [f32; 2];

// === impl Transformer ===

impl Transformer {
    /// Loads a graph as `train/second_onnx.py` writes it. It takes some tens of milliseconds.
    ///
    /// # Errors
    /// What does not fit.
    pub(crate) fn load(graph: &'static [u8]) -> Result<Self, String> {
        let say = |error: &dyn fmt::Display| format!("second.rten: {error}");
        // What the graph is made of, and what rten makes of that; the others stay out of the binary.
        let operators = op_registry!(
            Add,
            Cast,
            Concat,
            DequantizeLinear,
            Div,
            DynamicQuantizeLinear,
            Erf,
            Gather,
            LayerNormalization,
            MatMul,
            MatMulInteger,
            Mul,
            ReduceMax,
            ReduceSum,
            Reshape,
            Shape,
            Slice,
            Softmax,
            Sub,
            Transpose,
            Unsqueeze
        );
        let mut options = ModelOptions::with_ops(operators);
        options.prepack_weights(true);
        let model = options.load_static_slice(graph).map_err(|error| say(&error))?;
        let node = |name: &str| model.node_id(name).map_err(|error| say(&error));
        let (ids, mask, logits) = (node("input_ids")?, node("attention_mask")?, node("logits")?);
        let pool = Arc::new(ThreadPool::with_num_threads(1));
        if pool.run(|| rustix::process::nice(NICENESS)).is_err() {
            tracing::debug!("the second stage's thread may not stand behind others");
        }
        Ok(Self { model, pool, ids, mask, logits })
    }

    /// What it says of windows of tokens, marks included, in their order; `each` is shown it, and asked before each of them with nothing,
    /// until it breaks. And the CPU time that took.
    ///
    /// # Errors
    /// What rten says.
    pub(crate) fn run<'a>(
        &self,
        windows: impl Iterator<Item = &'a [u32]> + Send,
        mut each: impl FnMut(Option<Logits>) -> ControlFlow<()> + Send,
    ) -> (Result<(), String>, Duration) {
        self.pool.run(|| {
            let begun = thread_time();
            let mut said = Ok(());
            for window in windows {
                if each(None).is_break() {
                    break;
                }
                match self.one(window) {
                    Ok(logits) if each(Some(logits)).is_continue() => {}
                    Ok(_) => break,
                    Err(error) => {
                        said = Err(error);
                        break;
                    }
                }
            }
            (said, thread_time().saturating_sub(begun))
        })
    }

    fn one(&self, window: &[u32]) -> Result<Logits, String> {
        let ids: Vec<i32> = window.iter().map(|id| i32::try_from(*id).unwrap_or_default()).collect();
        let mask = NdTensor::<i32, 2>::full([1, ids.len()], 1);
        let ids = NdTensor::from_data([1, ids.len()], ids);
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.pool)));
        let inputs = vec![(self.ids, ids.into()), (self.mask, mask.into())];
        let said = self.model.run(inputs, &[self.logits], Some(options)).map_err(|error| error.to_string())?;
        let said: Option<rten_tensor::Tensor<f32>> = said.into_iter().next().and_then(|said| said.try_into().ok());
        let logits = said
            .and_then(|said| Logits::try_from(said.to_vec()).ok())
            .filter(|of| of.iter().all(|one| one.is_finite()));
        logits.ok_or_else(|| "the graph does not say two numbers".to_owned())
    }
}

impl fmt::Debug for Transformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transformer")
    }
}

/// CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
