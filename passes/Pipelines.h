#pragma once
namespace mlir::step { void registerPassesAndPipelines(); }
