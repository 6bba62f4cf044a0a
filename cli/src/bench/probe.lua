-- A single-row update every 10 ms: what it waits for is what a user would wait for. Prints for each
-- second of the run the longest that ended in it: "probe SECOND MILLISECONDS". Run with one thread.

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long seconds; long nanoseconds; } probe_time;
  int clock_gettime(int clock, probe_time *time);
  int usleep(unsigned int microseconds);
]]
local monotonic = 1
local time = ffi.new("probe_time")

local function now_ms()
  ffi.C.clock_gettime(monotonic, time)
  return tonumber(time.seconds) * 1000 + tonumber(time.nanoseconds) / 1e6
end

function thread_init()
  drv = sysbench.sql.driver()
  con = drv:connect()
  began_ms = now_ms()
  second, longest_ms = 1, 0
end

function thread_done()
  con:disconnect()
end

function event()
  local from_ms = now_ms()
  con:query("UPDATE probe SET n = n + 1 WHERE id = " .. sysbench.rand.uniform(1, 100))
  local to_ms = now_ms()
  longest_ms = math.max(longest_ms, to_ms - from_ms)
  local running = math.floor((to_ms - began_ms) / 1000) + 1
  if running > second then
    print(string.format("probe %d %.1f", running, longest_ms))
    io.stdout:flush()
    second, longest_ms = running, 0
  end
  ffi.C.usleep(10000)
end
