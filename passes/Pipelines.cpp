#include "passes/Pipelines.h"
void mlir::step::registerPassesAndPipelines() {}
