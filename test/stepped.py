# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes with states that matter, for what is said of each in the same way: how states are kept,
and where."""

import stepc.torch as st

GALORE = {"rank": 64, "update_proj_gap": 2}
CLASSES = {
    "AdamW": lambda ps, **more: st.AdamW(ps, lr=0.05, **more),
    "AdamW amsgrad": lambda ps, **more: st.AdamW(ps, lr=0.05, amsgrad=True, **more),
    "Adam": lambda ps, **more: st.Adam(ps, lr=0.05, weight_decay=0.1, **more),
    "NAdam": st.NAdam,
    "RAdam": st.RAdam,
    "Adamax": st.Adamax,
    "Adadelta": st.Adadelta,
    "Adagrad": lambda ps, **more: st.Adagrad(ps, initial_accumulator_value=0.3, **more),
    "RMSprop": lambda ps, **more: st.RMSprop(ps, momentum=0.9, centered=True, **more),
    "Rprop": st.Rprop,
    "ASGD": st.ASGD,
    "SGD": lambda ps, **more: st.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, **more),
    "Lion": st.Lion,
    "LARS": lambda ps, **more: st.LARS(ps, lr=0.1, momentum=0.9, **more),
    "FusedLAMB": st.apex.FusedLAMB,
    "SophiaG": st.SophiaG,
    "CAME": lambda ps, **more: st.came.CAME(ps, lr=0.01, **more),
    "Adafactor": lambda ps, **more: st.hf.Adafactor(ps, beta1=0.9, **more),
}
OF_TWO_DIMS = {
    "SOAP": lambda ps, **more: st.SOAP(ps, precondition_frequency=2, **more),
    "Shampoo": lambda ps, **more: st.Shampoo(ps, precondition_frequency=2, **more),
}
OF_MATRICES = {
    "GaLoreAdamW": lambda ps, **more: st.GaLoreAdamW([{"params": ps, **GALORE}], **more),
    "APOLLOAdamW": lambda ps, **more: st.APOLLOAdamW([{"params": ps, **GALORE}], **more),
    "Muon": lambda ps, **more: st.Muon(ps, lr=0.05, **more),
    "NorMuon": st.NorMuon,
    "Dion": st.Dion,
}
