-- What the scripts of graph checkpoints share; it stands before each of them. All state of a thread is in one hash:
--   _graph:checkpoint:<namespace>:<id>             its record, MessagePack: parent, run, how many ancestors it needs,
--                                                  the fields of its values, and the number of its put
--   _graph:body:<namespace>:<id>                   the rest of it, which Python alone reads
--   _graph:value:<namespace>:<channel>:<version>   a channel's value, shared by all checkpoints that have it
--   _graph:writes:<namespace>:<id>                 the fields of its pending writes, a line each
--   _graph:write:<namespace>:<id>:<task>:<index>   one of them
--   _graph:latest:<namespace>                      the id of the newest checkpoint: the last put, because ids are made
--                                                  of the clocks of those who put them
--   _graph:puts                                    how many there were
--   _graph:deleted                                 something was deleted here: what comes late is refused
-- Parts of names are written as in keys, so they hold no colon. `_fence` and `_worker` are those of a job.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  the worker's fence, 0 outside of jobs
-- ARGV[2]  the worker
-- ARGV[3]  the hash's lifetime in milliseconds
local key = KEYS[1]

-- The fence of a later worker, or nil.
local function later()
  local held = tonumber(redis.call('HGET', key, '_fence') or 0)
  if held > tonumber(ARGV[1]) then return held end
end

-- Renews the lifetime, with which a checkpoint of a job that was lost begins anew.
local function renew()
  if ARGV[1] ~= '0' then redis.call('HSET', key, '_fence', ARGV[1], '_worker', ARGV[2]) end
  redis.call('PEXPIRE', key, ARGV[3])
end

-- What the records say: namespace -> id -> {parent, run, ancestors, values, number}; of one namespace if it is given.
local function records(only)
  local found = {}
  for _, name in ipairs(redis.call('HKEYS', key)) do
    local namespace, id = string.match(name, '^_graph:checkpoint:([^:]*):([^:]*)$')
    if namespace and (not only or namespace == only) then
      found[namespace] = found[namespace] or {}
      found[namespace][id] = cmsgpack.unpack(redis.call('HGET', key, name))
    end
  end
  return found
end

-- The ids to keep of a namespace's records: the newest, and the ancestors that these need.
local function newest(of, count)
  local ids, keep = {}, {}
  for id in pairs(of) do ids[#ids + 1] = id end
  table.sort(ids, function(one, other) return of[one][5] > of[other][5] end)
  for place = 1, math.min(count, #ids) do
    local id, need = ids[place], of[ids[place]][3]
    keep[id] = true
    while need > 0 and of[of[id][1]] do
      id, need = of[id][1], need - 1
      keep[id] = true
    end
  end
  return keep
end

-- Removes from these namespaces every checkpoint but those to keep, and the values and writes that only they had.
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
        -- Writes may come before their checkpoint, and so be newer than all.
        local known = found[namespace][id] or (last[namespace] and id < last[namespace])
        doomed = known and not ids[id]
      end
      if doomed then redis.call('HDEL', key, name) end
    end
  end
end
