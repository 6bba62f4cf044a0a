-- A single-row update at a fixed pace: what it waits for is what a user would wait for.
-- Run with --threads=1 --rate=100.

function thread_init()
  drv = sysbench.sql.driver()
  con = drv:connect()
end

function thread_done()
  con:disconnect()
end

function event()
  con:query("UPDATE probe SET n = n + 1 WHERE id = " .. sysbench.rand.uniform(1, 100))
end
