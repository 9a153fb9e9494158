//! Eviction policies written in Python: `flashwright.Policy` documents the calls that they receive.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use bench::simulate::CustomPolicy;
use policy::eviction::clairvoyant::NEVER;
use policy::simulate::{Access, Counts, Rules, Simulation, Simulator};
use policy::{Entry, Eviction, HitRule, Slot};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::Error;

/// The first exception that a policy of a command raised.
#[derive(Clone, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// A policy that `simulate` can run: each cache gets a copy of `prototype`.
pub fn custom_policy(name: &str, prototype: Py<PyAny>, raised: &Raised) -> PyResult<CustomPolicy> {
    let (owned_name, raised) = (name.to_owned(), raised.clone());
    let build = move |capacity_bytes, rules| {
        let policy = PythonPolicy::new(&owned_name, &prototype, capacity_bytes, raised.clone());
        simulator(policy, capacity_bytes, rules)
    };
    CustomPolicy::new(name, build).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn simulator(policy: PythonPolicy, capacity_bytes: u64, rules: Rules) -> Box<dyn Simulator> {
    Box::new(PythonSimulator(Simulation::new(policy, capacity_bytes).with_rules(rules)))
}

/// A cache that holds the GIL for a batch of requests, since to acquire it for each call takes longer than the call.
struct PythonSimulator(Simulation<PythonPolicy>);

impl Simulator for PythonSimulator {
    fn run(&mut self, accesses: &[Access], _next_uses: &[u64]) {
        Python::attach(|_| {
            for access in accesses {
                if self.0.policy().methods.is_none() {
                    return;
                }
                self.0.policy().requested.set((access.object, access.weight));
                self.0.access(access, NEVER);
            }
        });
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }

    fn holds(&self, object: u32) -> bool {
        Simulator::holds(&self.0, object)
    }

    fn expire(&mut self, object: u32) {
        self.0.expire(object);
    }
}

/// The methods of a Python policy, bound to its object.
struct Methods {
    hit: Py<PyAny>,
    miss: Py<PyAny>,
    evict: Py<PyAny>,
    remove: Py<PyAny>,
}

/// A Python object as an eviction policy. After an exception it ignores all calls: the command ends and its result is discarded.
struct PythonPolicy {
    name: String,
    /// `None` after an exception.
    methods: Option<Methods>,
    /// Size of each cached object by slot; [`NOT_CACHED`] for the others.
    sizes: Vec<u32>,
    cached: usize,
    /// Key and size of the request in progress.
    requested: Cell<(u32, u32)>,
    raised: Raised,
}

const NOT_CACHED: u32 = u32::MAX;

impl PythonPolicy {
    fn new(name: &str, prototype: &Py<PyAny>, capacity_bytes: u64, raised: Raised) -> Self {
        let methods = Python::attach(|py| -> PyResult<Methods> {
            let policy = py.import("copy")?.call_method1("deepcopy", (prototype,))?;
            policy.call_method1("start", (capacity_bytes,))?;
            let method = |name| policy.getattr(name).map(Bound::unbind);
            Ok(Methods {
                hit: method("hit")?,
                miss: method("miss")?,
                evict: method("evict")?,
                remove: method("remove")?,
            })
        });
        let methods = methods.map_err(|error| raised.set(error)).ok();
        let requested = Cell::new((0, 0));
        Self { name: name.to_owned(), methods, sizes: Vec::new(), cached: 0, requested, raised }
    }

    /// Runs `call`, unless a call failed before.
    fn call<T>(&mut self, call: impl FnOnce(Python<'_>, &Methods) -> PyResult<T>) -> Option<T> {
        let methods = self.methods.as_ref()?;
        match Python::attach(|py| call(py, methods)) {
            Ok(value) => Some(value),
            Err(error) => {
                self.raised.set(error);
                self.methods = None;
                None
            }
        }
    }

    fn size(&self, slot: Slot) -> u32 {
        self.sizes.get(slot.0 as usize).copied().unwrap_or(NOT_CACHED)
    }

    fn forget(&mut self, slot: Slot) {
        self.sizes[slot.0 as usize] = NOT_CACHED;
        self.cached -= 1;
    }

    /// The cached object that the policy chose.
    fn victim(&self, chosen: &Bound<'_, PyAny>) -> PyResult<Slot> {
        let key = chosen.extract::<u32>().ok().filter(|key| self.size(Slot(*key)) != NOT_CACHED);
        key.map(Slot).ok_or_else(|| {
            let given = chosen.repr().map_or_else(|_| "a value".to_owned(), |words| words.to_string());
            Error::new_err(format!(
                "{}.evict returned {given}: it must return the key of a cached object ({} are cached)",
                self.name, self.cached
            ))
        })
    }
}

impl Eviction for PythonPolicy {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let place = slot.0 as usize;
        if place >= self.sizes.len() {
            self.sizes.resize((place + 1).next_power_of_two(), NOT_CACHED);
        }
        self.sizes[place] = entry.weight;
        self.cached += 1;
        self.call(|py, methods| methods.miss.call1(py, (slot.0, entry.weight)));
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let size = self.size(slot);
        self.call(|py, methods| methods.hit.call1(py, (slot.0, size)));
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        if self.cached == 0 {
            return None;
        }
        let requested = self.requested.get();
        let chosen = self.call(|py, methods| methods.evict.call1(py, requested))?;
        match Python::attach(|py| self.victim(chosen.bind(py))) {
            Ok(slot) => {
                self.forget(slot);
                Some(slot)
            }
            Err(error) => self.call(|_, _| Err(error)),
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.forget(slot);
        self.call(|py, methods| methods.remove.call1(py, (slot.0,)));
    }

    fn set_capacity(&mut self, _capacity_weight: u64) {}

    fn len(&self) -> usize {
        self.cached
    }

    fn oldest(&self) -> Option<Slot> {
        None
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.sizes[slot.0 as usize] = weight;
    }
}
