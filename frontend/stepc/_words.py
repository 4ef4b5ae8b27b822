# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What messages of the runtime say, in the words of Python.

The library speaks to those who call it in C: "call stepcPlanUpload before". Who has an optimizer
of ``stepc.torch`` knows neither its functions nor its structures, so each of their names has a
word here: "call upload() before".
"""

from __future__ import annotations

import re

_IN_PARTS = "a step in parts"
NAMES = {
    "stepcGradReady": "telling that gradients have come",
    "stepcGradAbsent": "telling that gradients will not come",
    "stepcGetParts": "asking which part a rank has",
    "stepcChooseOwners": "asking who owns which tensor",
    "stepcPassBegin": "the begin of a backward pass",
    "stepcPassEnd": "the end of a backward pass",
    "stepcPlanAddGroup": "add_param_group()",
    "stepcPlanBind": "binding tensors",
    "stepcPlanSetBuckets": "choosing how much crosses ranks at a time",
    "stepcPlanSetParam": "moving a parameter",
    "stepcPlanFindUnused": "finding unused parameters",
    "stepcPlanForgetGrads": "zero_grad()",
    "stepcPlanParametersWritten": "the tensor's version",
    "stepcPlanSetCount": "setting a count of steps",
    "stepcPlanSetCuda": "choosing a CUDA device",
    "stepcCudaTakeHost": "taking the host's memory for states",
    "stepcPlanSetMesh": "choosing the ranks",
    "stepcPlanSetScalar": "set_scalar()",
    "stepcPlanSetStream": "choosing a stream",
    "stepcPlanShareSums": "sharing the memory of sums",
    "stepcPlanSetStore": "choosing where states lie",
    "stepcStoreOpen": "opening a file of states",
    "stepcStoreClose": "closing the file of states",
    "stepcStoreUnlock": "letting others open the file of states",
    "stepcStoreLock": "taking the file of states back",
    "stepcStoreCommit": "committing a step to the file of states",
    "stepcStoreCreate": "making a file for states",
    "stepcStoreGetAddress": "finding a state in the file of states",
    "stepcStoreGetCommitted": "asking for the last step of the file of states",
    "stepcStoreGetOffset": "asking for a place in the file of states",
    "stepcStoreGive": "giving back a part of the file of states",
    "stepcStoreRetreat": "going back in the file of states",
    "stepcStoreRead": "reading a state of the file",
    "stepcStoreTake": "taking a part of the file of states",
    "stepcStoreWrite": "writing a state to the file",
    "stepcPlanTakeGrads": "taking over gradients",
    "stepcPlanUpload": "upload()",
    "stepcStep": "step()",
    "stepcStepAbandon": f"giving up {_IN_PARTS}",
    "stepcStepBegin": f"the begin of {_IN_PARTS}",
    "stepcStepEnd": f"the end of {_IN_PARTS}",
    "stepcStepTensors": "stepping some tensors",
    "--exclusive-writes": "exclusive_writes=True",
    "--reproducible": "reproducible=True",
}
# Sizes and fields of these are set by stepc._runtime; a message that names one tells that it and
# the library are of other versions.
STRUCTURES = {
    "StepcBinding": "tensor's description",
    "StepcCommunicator": "communicator",
    "StepcCudaConfig": "configuration of the CUDA device",
    "StepcEntry": "way to lie outside of a step",
    "StepcLastStep": "report of the last step",
    "StepcLayout": "layout",
    "StepcPlanConfig": "configuration of the plan",
    "StepcPlanInfo": "report of the plan",
    "StepcSimulatedCounters": "counters of simulated ranks",
    "StepcStateFormatInfo": "report of a format of codes",
    "StepcStoreCommitted": "report of the last step of the file of states",
    "StepcStoreConfig": "configuration of the file of states",
    "StepcStoreInfo": "report of the file of states",
    "StepcTensorQuery": "question about a tensor",
}
_KNOWN = {**NAMES, **STRUCTURES}
_NAME = re.compile(r"(?<![\w'/.])(?:stepc[A-Z]\w*|Stepc[A-Z]\w*|--[a-z]+(?:-[a-z]+)*)(?![\w'])")


def in_python(message: str) -> str:
    """A message of the library with its own names replaced; what stands in quotes is the
    user's, and stays."""
    return _NAME.sub(lambda found: _KNOWN.get(found[0], found[0]), message)
