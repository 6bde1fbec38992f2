-- The shared part of all scripts of graph checkpoints. All state of a thread is in one hash:
--   _graph:checkpoint:<namespace>:<id>             its record, MessagePack: parent, run, how many ancestors it needs,
--                                                  the fields of its values, and the number of its put
--   _graph:body:<namespace>:<id>                   the rest of it, which only Python reads
--   _graph:value:<namespace>:<channel>:<version>   a channel's value, shared by all its checkpoints
--   _graph:writes:<namespace>:<id>                 the fields of its pending writes, a line each
--   _graph:write:<namespace>:<id>:<task>:<index>   one of them
--   _graph:latest:<namespace>                      the id of the newest checkpoint, by put: ids are derived from the
--                                                  clocks of processes
--   _graph:puts                                    the number of puts
--   _graph:deleted                                 something was deleted here: late checkpoints are refused
-- Parts of names are escaped as in keys, so they contain no colon. `_fence` and `_worker` belong to the job.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  the worker's fence, 0 outside of jobs
-- ARGV[2]  the worker
-- ARGV[3]  the hash's lifetime in milliseconds
local key = KEYS[1]

-- The fence of a later worker, or nil.
local function later()
  local held = tonumber(redis.call('HGET', key, '_fence') or 0) or 0
  if held > tonumber(ARGV[1]) then return held end
end

-- Renews the lifetime, and creates the checkpoint of a job again if it was lost.
local function renew()
  if ARGV[1] ~= '0' then redis.call('HSET', key, '_fence', ARGV[1], '_worker', ARGV[2]) end
  redis.call('PEXPIRE', key, ARGV[3])
end

-- A record, or nil if it cannot be decoded.
local function unpacked(packed)
  local decoded, record = pcall(cmsgpack.unpack, packed)
  if not decoded or type(record) ~= 'table' or type(record[4]) ~= 'table' then return end
  local types = type(record[1]) .. type(record[2]) .. type(record[3]) .. type(record[5])
  if types ~= 'stringstringnumbernumber' then return end
  for _, name in ipairs(record[4]) do
    if type(name) ~= 'string' then return end
  end
  return record
end

-- The records: namespace -> id -> {parent, run, ancestors, values, number}; of one namespace if given.
local function records(only)
  local found = {}
  for _, name in ipairs(redis.call('HKEYS', key)) do
    local namespace, id = string.match(name, '^_graph:checkpoint:([^:]*):([^:]*)$')
    if namespace and (not only or namespace == only) then
      found[namespace] = found[namespace] or {}
      found[namespace][id] = unpacked(redis.call('HGET', key, name))
    end
  end
  return found
end

-- The ids to keep of a namespace's records: the newest, and the ancestors that these need.
local function newest(of, count)
  local ids, keep = {}, {}
  for id in pairs(of) do ids[#ids + 1] = id end
  table.sort(ids, function(one, other) return of[one][5] > of[other][5] end)
  for at = 1, math.min(count, #ids) do
    local id, need = ids[at], math.min(of[ids[at]][3], #ids)
    keep[id] = true
    while need > 0 and of[of[id][1]] do
      id, need = of[id][1], need - 1
      keep[id] = true
    end
  end
  return keep
end

-- Removes every checkpoint of these namespaces except those to keep, with the values and writes only they used.
local function keep_only(found, keep)
  local used, last = {}, {}
  for namespace, ids in pairs(keep) do
    for id in pairs(ids) do
      local record, before = found[namespace][id], found[namespace][last[namespace]]
      if not before or record[5] > before[5] then last[namespace] = id end
      for _, name in ipairs(record[4]) do used[name] = true end
    end
  end
  for _, name in ipairs(redis.call('HKEYS', key)) do
    local kind, namespace, id = string.match(name, '^_graph:(%a+):([^:]*):?([^:]*)')
    local ids = kind and keep[namespace]
    if ids then
      local doomed
      if kind == 'value' then
        doomed = not used[name]
      elseif kind == 'latest' then
        doomed = not last[namespace]
        if not doomed then redis.call('HSET', key, name, last[namespace]) end
      else
        -- Writes may arrive before their checkpoint, and so be newer than all checkpoints.
        local known = found[namespace][id] or (last[namespace] and id < last[namespace])
        doomed = known and not ids[id]
      end
      if doomed then redis.call('HDEL', key, name) end
    end
  end
end
