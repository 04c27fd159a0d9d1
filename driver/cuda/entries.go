package cuda

// entry is a function of libcuda, as an index into library.at.
type entry int

// The names omit the version suffixes, which the table below adds.
const (
	cuInit entry = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetUUID
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxGetCurrent
	cuCtxSetCurrent
	cuCtxSynchronize
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemHostGetDevicePointer
	cuMemFreeHost
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8Async
	cuLibraryLoadData
	cuLibraryUnload
	cuLibraryGetModule
	cuModuleGetFunction
	cuLinkCreate
	cuLinkAddData
	cuLinkComplete
	cuLinkDestroy
	cuFuncGetAttribute
	cuFuncSetAttribute
	cuFuncGetParamInfo
	cuLaunchKernel
	cuLaunchKernelEx
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamBeginCapture
	cuStreamEndCapture
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuEventElapsedTime
	cuGraphInstantiate
	cuGraphLaunch
	cuGraphDestroy
	cuGraphExecDestroy
	entryCount
)

// entries holds the names that the library exports. A name without its suffix would select an old ABI,
// such as 32-bit addresses. A driver that lacks an optional function can be opened; a call that needs the
// function is driver.ErrUnsupported.
var entries = [entryCount]struct {
	name     string
	optional bool
}{
	cuInit:                    {name: "cuInit"},
	cuDriverGetVersion:        {name: "cuDriverGetVersion"},
	cuGetErrorName:            {name: "cuGetErrorName"},
	cuGetErrorString:          {name: "cuGetErrorString"},
	cuDeviceGetCount:          {name: "cuDeviceGetCount"},
	cuDeviceGet:               {name: "cuDeviceGet"},
	cuDeviceGetName:           {name: "cuDeviceGetName"},
	cuDeviceGetUUID:           {name: "cuDeviceGetUuid", optional: true},
	cuDeviceTotalMem:          {name: "cuDeviceTotalMem_v2"},
	cuDeviceGetAttribute:      {name: "cuDeviceGetAttribute"},
	cuDevicePrimaryCtxRetain:  {name: "cuDevicePrimaryCtxRetain"},
	cuDevicePrimaryCtxRelease: {name: "cuDevicePrimaryCtxRelease_v2"},
	cuCtxGetCurrent:           {name: "cuCtxGetCurrent"},
	cuCtxSetCurrent:           {name: "cuCtxSetCurrent"},
	cuCtxSynchronize:          {name: "cuCtxSynchronize"},
	cuMemGetInfo:              {name: "cuMemGetInfo_v2"},
	cuMemAlloc:                {name: "cuMemAlloc_v2"},
	cuMemFree:                 {name: "cuMemFree_v2"},
	cuMemHostAlloc:            {name: "cuMemHostAlloc"},
	cuMemHostGetDevicePointer: {name: "cuMemHostGetDevicePointer_v2"},
	cuMemFreeHost:             {name: "cuMemFreeHost"},
	cuMemcpyHtoDAsync:         {name: "cuMemcpyHtoDAsync_v2"},
	cuMemcpyDtoHAsync:         {name: "cuMemcpyDtoHAsync_v2"},
	cuMemcpyDtoDAsync:         {name: "cuMemcpyDtoDAsync_v2"},
	cuMemsetD8Async:           {name: "cuMemsetD8Async"},
	cuLibraryLoadData:         {name: "cuLibraryLoadData"},
	cuLibraryUnload:           {name: "cuLibraryUnload"},
	cuLibraryGetModule:        {name: "cuLibraryGetModule"},
	cuModuleGetFunction:       {name: "cuModuleGetFunction"},
	cuLinkCreate:              {name: "cuLinkCreate_v2", optional: true},
	cuLinkAddData:             {name: "cuLinkAddData_v2", optional: true},
	cuLinkComplete:            {name: "cuLinkComplete", optional: true},
	cuLinkDestroy:             {name: "cuLinkDestroy", optional: true},
	cuFuncGetAttribute:        {name: "cuFuncGetAttribute"},
	cuFuncSetAttribute:        {name: "cuFuncSetAttribute"},
	cuFuncGetParamInfo:        {name: "cuFuncGetParamInfo", optional: true},
	cuLaunchKernel:            {name: "cuLaunchKernel"},
	cuLaunchKernelEx:          {name: "cuLaunchKernelEx", optional: true},
	cuStreamCreate:            {name: "cuStreamCreate"},
	cuStreamDestroy:           {name: "cuStreamDestroy_v2"},
	cuStreamSynchronize:       {name: "cuStreamSynchronize"},
	cuStreamBeginCapture:      {name: "cuStreamBeginCapture_v2", optional: true},
	cuStreamEndCapture:        {name: "cuStreamEndCapture", optional: true},
	cuEventCreate:             {name: "cuEventCreate"},
	cuEventDestroy:            {name: "cuEventDestroy_v2"},
	cuEventRecord:             {name: "cuEventRecord"},
	cuEventSynchronize:        {name: "cuEventSynchronize"},
	cuEventElapsedTime:        {name: "cuEventElapsedTime"},
	cuGraphInstantiate:        {name: "cuGraphInstantiateWithFlags", optional: true},
	cuGraphLaunch:             {name: "cuGraphLaunch", optional: true},
	cuGraphDestroy:            {name: "cuGraphDestroy", optional: true},
	cuGraphExecDestroy:        {name: "cuGraphExecDestroy", optional: true},
}

// String returns the name that the library exports.
func (e entry) String() string { return entries[e].name }
